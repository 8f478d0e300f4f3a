"""What a module uses, and another one above it defines: an import would run upward.

The module above puts it there when it is imported. Where that is when the first use comes, `promises` has the name of
the module: see `satellites.py`.

>>> from subclass_aot.base.later import Later, Registry
>>> double: Later = Later("double")
>>> @double.put
... def doubled(x):
...     return 2 * x
>>> double(3)
6
>>> colors: Registry = Registry("color")
>>> colors["red"] = 0xff0000
>>> colors["red"], list(colors), "blue" in colors
(16711680, ['red'], False)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Generic, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

promises: dict[str, str] = {}
"""By the name of a function, or by the kind and the name of a thing in a registry: the module that defines it."""


class Later(Generic[_P, _R]):
    """A place for a function.

    Args:
        name: What `promises` and errors call it.
        otherwise: What is called where nobody defines it; an error if left out.
    """

    __slots__ = ("_function", "_name", "_otherwise")

    def __init__(self, name: str, otherwise: Callable[_P, _R] | None = None) -> None:
        self._name = name
        self._function: Callable[_P, _R] | None = None
        self._otherwise = otherwise

    def put(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Fills the place; a decorator."""
        self._function = function
        return function

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        if self._function is None and self._name in promises:
            importlib.import_module(promises[self._name])
        function = self._function or self._otherwise
        if function is None:
            raise RuntimeError(f"{self._name} is not defined yet: import subclass_aot")
        return function(*args, **kwargs)


class Registry(MutableMapping[str, _R]):
    """Things by name, each put in by the module that defines it. Those that are promised are among them.

    Args:
        kind: What `promises` call each thing, before its name.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._things: dict[str, _R] = {}

    def __getitem__(self, name: str) -> _R:
        promise = f"{self._kind} {name}"
        if name not in self._things and promise in promises:
            importlib.import_module(promises[promise])
        return self._things[name]

    def __setitem__(self, name: str, thing: _R) -> None:
        self._things[name] = thing

    def __delitem__(self, name: str) -> None:
        del self._things[name]

    def __contains__(self, name: Any) -> bool:
        return name in self._things or f"{self._kind} {name}" in promises

    def __iter__(self) -> Iterator[str]:
        promised = [each.removeprefix(f"{self._kind} ") for each in promises if each.startswith(f"{self._kind} ")]
        return iter(dict.fromkeys([*promised, *self._things]))

    def __len__(self) -> int:
        return sum(1 for _ in self)
