"""Modules that torch's rules for shapes import, and of which they need next to nothing: sympy, the solver, and Dynamo.

They are slow to import, and together are most of the first call of a process. A rule asks whether a value is an
expression of sympy, of which there is none before sympy is there; the solver whether two sizes are equal, which numbers
say themselves; and Dynamo for a function that it leaves alone, which it does before it is there. So while a rule runs,
a module stands in the place of each that has these names, and becomes the real one at any other name, or for a symbol.
When it goes: the first call of a process takes three times as long.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

import torch

from subclass_aot.base.put_back import PutBack

_MARK = "__dynamo_disable"


class _Postponed(ModuleType):
    """Stands for a module that is not imported yet.

    Args:
        name: Its name.
        known: The names that rules use, with their values.
    """

    def __init__(self, name: str, known: Mapping[str, object]) -> None:
        super().__init__(name)
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # each import asks for it, and this is no package
            raise AttributeError(name)
        if name.islower() and not name.startswith("_") and self.__name__ == _SOLVER:
            return _of_numbers(name, None)
        return getattr(_imported(self.__name__), name)


class _Finder(MetaPathFinder):
    """Finds parts of a package in whose place a module stands: they come with the real one."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """Imports the package, then the part; and gives the part, if it is one of such a package."""
        package = name.rpartition(".")[0]
        if type(sys.modules.get(package)) is not _Postponed:
            return None
        _imported(package)
        part = importlib.import_module(name)
        del sys.modules[name]  # else Python goes by the spec that the part has, and loads it once more
        return spec_from_loader(name, _Loaded(part))


class _Loaded(Loader):
    """Gives a module that is loaded.

    Args:
        module: The module.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Gives it."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Gives it back the spec that it had: Python has put that of this loader there, where a module lets it."""
        if module.__spec__ is not self._spec:
            module.__spec__ = self._spec


class _NoExpression:
    """Is the class of nothing."""


_SYMPY, _SOLVER, _DYNAMO = "sympy", "torch.fx.experimental.symbolic_shapes", "torch._dynamo"
_FUNCTIONS = "torch.utils._sympy.functions"


def _of_numbers(name: str, answer: Callable[..., Any] | None) -> Callable[..., Any]:
    """Returns a function of the solver that answers of numbers itself.

    Args:
        name: Its name.
        answer: What it says of numbers; None if only the solver says it.
    """

    def function(*args: object, **kwargs: object) -> Any:
        if answer is not None and not kwargs and all(map(_is_plain, args)):
            return answer(*args)
        return getattr(_imported(_SOLVER), name)(*args, **kwargs)

    return function


def _is_plain(value: object) -> bool:
    """Returns whether a value is a number, a shape of numbers, or a tensor of such a shape."""
    if isinstance(value, torch.Tensor):
        return _is_plain((*value.shape, *value.stride(), value.storage_offset()))
    return type(value) in (bool, int) or isinstance(value, tuple | list) and all(map(_is_plain, value))


def _equal(one: object, other: object) -> bool:
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return tuple(one) == tuple(other)
    return one == other


OF_SOLVER = {
    "expect_true": _of_numbers("expect_true", bool),
    "guard_or_false": _of_numbers("guard_or_false", bool),
    "guard_or_true": _of_numbers("guard_or_true", bool),
    "statically_known_true": _of_numbers("statically_known_true", bool),
    "is_nested_int": _of_numbers("is_nested_int", lambda value: False),
    "has_guarding_hint": _of_numbers("has_guarding_hint", lambda value: True),
    "free_unbacked_symbols": _of_numbers("free_unbacked_symbols", lambda value: set()),
    "sym_and": _of_numbers("sym_and", lambda *values: all(values)),
    "sym_or": _of_numbers("sym_or", lambda *values: any(values)),
    "sym_eq": _of_numbers("sym_eq", _equal),
    "guard_size_oblivious": _of_numbers("guard_size_oblivious", bool),
}
"""What rules call with numbers. Any other function that is imported, and not called, costs nothing."""


def without_slow_imports() -> AbstractContextManager[None]:
    """Returns a block in which a rule for shapes imports none of them that is not there yet."""
    all_there = _SYMPY in sys.modules and _SOLVER in sys.modules and _DYNAMO in sys.modules
    return nullcontext() if all_there else _without()


@contextmanager
def _without() -> Iterator[None]:
    left_alone: list[Any] = []

    def disable(function: Callable[..., Any], recursive: bool = True, **_: object) -> Callable[..., Any]:
        left_alone.append(function)
        return function

    missing: dict[str, Mapping[str, object]] = {
        _SYMPY: {"Basic": _NoExpression},
        _SOLVER: OF_SOLVER,
        _FUNCTIONS: {"Max": None},  # which is imported, and used nowhere
        _DYNAMO: {"disable": disable},
    }
    put = [_Postponed(name, known) for name, known in missing.items() if name not in sys.modules]
    finder = _Finder()

    def put_back() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        for module in put:
            _remove(module)
        for function in left_alone:  # the real Dynamo makes another one
            vars(function).pop(_MARK, None)

    with PutBack(put_back):
        for module in put:
            sys.modules[module.__name__] = module
            if module.__name__ in (_SYMPY, _DYNAMO):
                module.__path__ = []
        sys.meta_path.insert(0, finder)
        yield


def _imported(name: str) -> ModuleType:
    """Returns the real module."""
    module = sys.modules.get(name)
    if type(module) is _Postponed:
        _remove(module)
    return importlib.import_module(name)


def _remove(module: ModuleType) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]
