"""What a module uses, and another one above it defines: an import would run upward.

The module above puts it there when it is imported. Where that is when the first use comes, the place has the name of
the module: the public face promises those, since it takes from everywhere.

>>> from subclass_aot.later import Later, Registry
>>> double: Later = Later("double")
>>> @double.put
... def doubled(x):
...     return 2 * x
>>> double(3)
6
>>> colors: Registry = Registry()
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


class Later(Generic[_P, _R]):
    """A place for a function.

    Args:
        name: What errors call it.
    """

    __slots__ = ("_function", "_module", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: str | None = None
        self._function: Callable[_P, _R] | None = None

    def put(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Fills the place; a decorator."""
        self._function = function
        return function

    def promise(self, module: str) -> None:
        """Says which module fills the place: it is imported at the first call."""
        self._module = module

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        if self._function is None and self._module is not None:
            importlib.import_module(self._module)
        if self._function is None:
            raise RuntimeError(f"{self._name} is not defined yet: import subclass_aot")
        return self._function(*args, **kwargs)


class Registry(MutableMapping[str, _R]):
    """Things by name, each put in by the module that defines it."""

    def __init__(self) -> None:
        self._things: dict[str, _R] = {}
        self._modules: dict[str, str] = {}

    def promise(self, name: str, module: str) -> None:
        """Says which module puts a thing in: it is imported when somebody asks for the name."""
        self._modules[name] = module

    def __getitem__(self, name: str) -> _R:
        if name not in self._things and name in self._modules:
            importlib.import_module(self._modules[name])
        return self._things[name]

    def __setitem__(self, name: str, thing: _R) -> None:
        self._things[name] = thing
        self._modules.setdefault(name, "")

    def __delitem__(self, name: str) -> None:
        del self._things[name], self._modules[name]

    def __contains__(self, name: Any) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)
