"""Names of classes and functions, as files have them: the module, and the name in it."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

METHODS = (staticmethod, classmethod, property, functools.cached_property, functools.partialmethod)
"""What makes attributes of a class of functions."""


def full_name(thing: type | types.FunctionType | types.BuiltinFunctionType) -> str:
    """Returns the name of a class or a function with its module.

    >>> full_name(full_name)
    'subclass_aot.base.named:full_name'
    """
    return f"{thing.__module__}:{thing.__qualname__}"


def named(name: str) -> Any:
    """Returns what has a name in a module that was imported; None if there is nothing.

    The module itself is not called: it may have a `__getattr__`.

    >>> named("subclass_aot.base.named:named") is named
    True
    """
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found
