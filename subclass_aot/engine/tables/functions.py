"""Tables of functions: closures, default arguments, attributes, and the globals that they name."""

from __future__ import annotations

import types

from subclass_aot.base.bytecode import attributes_of_global, named_globals, stored_attributes, stored_globals
from subclass_aot.base.shown_type import builtin_of
from subclass_aot.engine.tables.owners import is_machinery, is_users
from subclass_aot.engine.tables.table import Table

_DEFAULTS = ("__defaults__", "__kwdefaults__")
_NO_STATE = frozenset({"__wrapped__"})  # what `functools.wraps` notes is in the closure, too


def function_tables(function: types.FunctionType, module_name: str | None) -> list[Table]:
    """Returns the tables of a function.

    Args:
        function: The function.
        module_name: The module of Python whose functions have a table of the globals that they name.
    """
    found = [Table("cells")] if function.__closure__ else []
    if not is_library(function):
        found += [Table("slots", _DEFAULTS)] if function.__defaults__ or function.__kwdefaults__ else []
        found.append(Table("attributes", but=_NO_STATE))
    if (function.__module__ == module_name or is_users(function.__module__)) and not is_library(function):
        there, stored = function.__globals__, set(stored_globals(function.__code__))
        named = named_globals(function.__code__)
        names = tuple(n for n in named if n in stored or n in there and _is_state(there[n]))
        if names:
            found.append(Table("globals", names))
        for module in named:
            other = there.get(module)
            if isinstance(other, types.ModuleType) and is_users(other.__name__):
                assigned = set(stored_attributes(function.__code__))
                asked = attributes_of_global(function.__code__, module)
                names = tuple(n for n in asked if n in assigned or n in vars(other) and _is_state(vars(other)[n]))
                found += [Table("globals", names, module=module)] if names else []
    return found


def _is_state(value: object) -> bool:
    """Returns whether a global may change what a function computes: modules of Python stay what they are, and so do
    builtins, in whose place a trace in another thread may have its own.
    """
    return builtin_of(value) is value and not isinstance(value, types.ModuleType)


def is_library(function: types.FunctionType) -> bool:
    """Returns whether a library defines a function: what it holds is no data of the program."""
    return function.__module__ is None or is_machinery(function.__module__)
