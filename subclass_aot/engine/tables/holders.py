"""Classes of Python objects that hold others where no dict and no slot has them: who knows one says how.

A view is a mapping by name, of what an object holds now: it is read, compared and written as a `__dict__` is.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from subclass_aot.base.later import Registry

View = MutableMapping[str, Any]

HOLDERS: Registry[Callable[[Any], View]] = Registry("holder")
"""By the full name of a class: makes the view of an object. What cannot be removed raises `LastingChangeError`."""


def is_holder(cls: type) -> bool:
    """Returns whether there are views of the objects of a class."""
    return f"{cls.__module__}.{cls.__qualname__}" in HOLDERS


def view_of(holder: object) -> View:
    """Returns the view of an object of such a class."""
    cls = type(holder)
    return HOLDERS[f"{cls.__module__}.{cls.__qualname__}"](holder)
