"""Classes of the user's that a call may read, and their methods that may run.

Nobody sees which globals and which attributes of classes a program reads. So what may run is found by names: a method
may, if Python calls it by itself, or if a function that may run has an attribute of its name.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from subclass_aot.base.bytecode import names_in
from subclass_aot.engine.tables.classes import has_data, stands_for_another

_MAKERS = frozenset({"__init__", "__new__", "__init_subclass__", "__post_init__"})
"""Methods that run when an object or a class is made."""


class Reached:
    """Classes and functions that a walk met."""

    def __init__(self) -> None:
        self._classes: dict[type, None] = {}
        self._names: set[str] = set()
        self._searched = (0, 0)

    def add_function(self, function: types.FunctionType) -> None:
        """Notes a function that may run."""
        self._names.update(names_in(function.__code__))

    def add_class(self, cls: type) -> Iterator[type]:
        """Yields, of a class, its metaclass and those that these derive from, the user's that were not met before."""
        meta: type = type(cls)
        for base in cls.__mro__ if meta is type else (*cls.__mro__, *meta.__mro__):
            if base not in self._classes and has_data(base):
                self._classes[base] = None
                yield base

    def methods(self) -> Iterator[types.FunctionType]:
        """Yields the methods that may run, by what was noted until now. Nothing was noted since the last time: none."""
        noted = len(self._classes), len(self._names)
        if noted == self._searched:
            return
        self._searched = noted
        for cls in self._classes:
            for name, value in vars(cls).items():
                function = _function_in(value)
                if function is not None and self._may_run(name):
                    yield function

    def _may_run(self, name: str) -> bool:
        by_python = name.startswith("__") and name.endswith("__") and name not in _MAKERS
        return by_python or name == "forward" or name in self._names


def _function_in(value: Any) -> types.FunctionType | None:
    """Returns the function that an attribute of a class is made of: a static method, a property, a compiled one."""
    while not isinstance(value, types.FunctionType):
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools.cached_property | functools.partialmethod):
            value = value.func
        elif stands_for_another(value):
            value = value.__wrapped__
        else:
            return None
    return value
