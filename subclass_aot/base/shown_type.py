"""What `type(x)`, `isinstance(n, int)` and `len(x)` are in a program that is traced: what eager mode has.

Note [Types in a trace]
~~~~~~~~~~~~~~~~~~~~~~~
A traced tensor is no `torch.Tensor` to `type`, and a symbolic size no `int` to `isinstance`. So another branch would be
compiled than eager mode takes: `type(x) is torch.Tensor`, `(n, n) if isinstance(n, int) else n`. Torch itself tells
symbolic numbers by that, so they cannot claim to be numbers everywhere. But both functions are builtins, which a module
finds behind its own globals: while a function is traced, the modules that its code comes from have globals of these
names. They give what eager mode has where a value stands for another, and are the builtins in all else; to other
threads it makes no difference. The same holds for modules that the program may call: those that are not installed, and
those of packages that know torch. What `x.__class__` is, a class can say itself.

So is `len`, which as a builtin gives a number of Python: of a tensor it is the size, also where that is a symbol.
"""

from __future__ import annotations

import builtins
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, Final

import torch

from subclass_aot.base._stack import is_installed
from subclass_aot.base.put_back import PutBack

_shown: dict[type, Callable[[Any], type]] = {}
_lock = threading.Lock()
_blocks: dict[int, set[object]] = {}


class ShownType:
    """Is `type`, but for what stands for something else in a trace."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if len(args) != 1 or kwargs:
            return type(*args, **kwargs)
        kind = type(args[0])
        return _shown[kind](args[0]) if kind in _shown else kind

    def __getattribute__(self, name: str) -> Any:
        # All attributes are those of `type`, but for what Python asks an instance for.
        own = name in ("__mro_entries__", "__reduce__", "__reduce_ex__")
        if name == "__new__":  # which refuses `type` as it is shown
            return lambda cls, *args, **kwargs: type.__new__(builtin_of(cls), *args, **kwargs)  # type: ignore[call-overload]
        return object.__getattribute__(self, name) if own else getattr(type, name)

    def __reduce__(self) -> Any:
        return type, (int,)  # this is the type of a class

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, type)

    def __subclasscheck__(self, cls: type) -> bool:
        return issubclass(cls, type)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (type,)

    def __eq__(self, other: object) -> bool:
        return other is type or other is self

    def __hash__(self) -> int:
        return hash(type)

    def __or__(self, other: object) -> Any:
        return type | other

    def __ror__(self, other: object) -> Any:
        return other | type

    def __repr__(self) -> str:
        return repr(type)


def _is_instance(value: object, kind: Any) -> bool:
    """Is `isinstance`; a symbolic number is one, too, as any number that it may be."""
    if isinstance(value, kind):
        return True
    shown = _shown.get(type(value))
    cls = None if shown is None else shown(value)
    return cls in _NUMBERS and isinstance(cls(), kind)


def _length(value: Sized) -> Any:
    """Is `len`; the length of a tensor may be symbolic."""
    if isinstance(value, torch.Tensor) and type(value).__len__ is torch.Tensor.__len__ and value.dim() > 0:
        return value.shape[0]
    return len(value)


_NUMBERS = (int, float, bool)
_BUILTINS: Final[dict[str, Any]] = {"type": ShownType(), "isinstance": _is_instance, "len": _length}


def builtin_of(value: object) -> object:
    """Returns the builtin where a value is what stands in its place in a trace; any other value as it is."""
    return next((getattr(builtins, name) for name, shown in _BUILTINS.items() if shown is value), value)


NO_PROGRAM = frozenset("torch torchgen functorch subclass_aot sympy mpmath numpy optree".split())
"""Packages that see values of a trace as they are: torch, this one, and what both are made of."""


def modules_of_programs() -> list[dict[str, Any]]:
    """Returns the globals of the modules that a program may call: see Note [Types in a trace]."""
    found = (sys.modules.get(name) for name in _found_modules(len(sys.modules), next(reversed(sys.modules), "")))
    return [vars(module) for module in found if module is not None]


@functools.lru_cache(maxsize=1)
def _found_modules(count: int, last: str) -> list[str]:
    """Returns the names of these modules; which are loaded, their number says, and which came last."""
    names_of: dict[str, list[str]] = {}
    packages = set()
    installed: dict[str, bool] = {}
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        if package in NO_PROGRAM or package in sys.stdlib_module_names or type(module) is not ModuleType:
            continue
        names_of.setdefault(package, []).append(name)
        file = vars(module).get("__file__")
        if package not in installed and isinstance(file, str):
            installed[package] = is_installed(name, file)
        if (
            not installed.get(package, True)
            or vars(module).get("torch") is torch
            or vars(module).get("Tensor") is torch.Tensor
        ):
            packages.add(package)
    return [name for package in packages for name in names_of[package]]


def show_as(cls: type, kind_of: Callable[[Any], type]) -> None:
    """Declares what programs see as the type of objects of a class.

    Args:
        cls: The class.
        kind_of: Gives the type of an object of the class.
    """
    _shown[cls] = kind_of


@contextmanager
def types_shown(modules: Iterable[dict[str, Any]]) -> Iterator[None]:
    """Runs the block while `type`, `isinstance` and `len` are others in the code of some modules.

    Args:
        modules: The globals of each. A module that has a global of that name keeps it.
    """
    there = {id(names): names for names in modules}
    block = object()
    with PutBack(partial(_leave, block, there)):
        with _lock:
            for key, names in there.items():
                _blocks.setdefault(key, set()).add(block)
                for name, shown in _BUILTINS.items():
                    names.setdefault(name, shown)
        yield


def _leave(block: object, there: dict[int, dict[str, Any]]) -> None:
    with _lock:
        for key, names in there.items():
            others = _blocks.get(key, set())
            others.discard(block)
            if not others:
                _blocks.pop(key, None)
                for name, shown in _BUILTINS.items():
                    if names.get(name) is shown:
                        del names[name]
