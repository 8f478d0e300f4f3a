"""Functions that a module calls, and another one above it defines: an import would run upward.

>>> from subclass_aot.later import Later
>>> double: Later = Later("double")
>>> @double.put
... def doubled(x):
...     return 2 * x
>>> double(3)
6
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Later(Generic[_P, _R]):
    """A place for a function, which the module that defines it fills when it is imported.

    Args:
        name: What errors call it.
    """

    __slots__ = ("_function", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._function: Callable[_P, _R] | None = None

    def put(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Fills the place; a decorator."""
        self._function = function
        return function

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        if self._function is None:
            raise RuntimeError(f"{self._name} is not defined yet: import subclass_aot")
        return self._function(*args, **kwargs)
