"""What functions hold: closures, default arguments, attributes, and the globals that they name."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable, Iterator

from subclass_aot.tables.owners import is_machinery, is_users
from subclass_aot.tables.table import Table

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
        there, stored = function.__globals__, set(_stored(function.__code__, ("STORE_GLOBAL", "DELETE_GLOBAL")))
        named = names_in(function.__code__)
        names = tuple(n for n in named if n in stored or n in there and _is_state(there[n]))
        if names:
            found.append(Table("globals", names))
        for module in named:
            other = there.get(module)
            if isinstance(other, types.ModuleType) and is_users(other.__name__):
                assigned = set(_stored(function.__code__, ("STORE_ATTR", "DELETE_ATTR")))
                names = tuple(n for n in named if n in assigned or n in vars(other) and _is_state(vars(other)[n]))
                found += [Table("globals", names, module=module)] if names else []
    return found


def only_appends(code: types.CodeType, name: str) -> bool:
    """Tells whether a function, and those inside it, use what a name stands for in `name.append(...)` alone."""
    # After the load of a name comes that of its attribute. What is left out makes cells, or is no instruction.
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "COPY_FREE_VARS", "MAKE_CELL")]
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if step.argval == name and step.opname.endswith(("DEREF", "GLOBAL", "GLOBALS", "NAME")):
            loads = step.opname in ("LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME")
            if not (loads and after is not None and after.argval in ("append", "extend")):
                return False
    return all(only_appends(c, name) for c in code.co_consts if isinstance(c, types.CodeType))


def names_in(code: types.CodeType) -> Iterable[str]:
    """Returns the names that a function, or one inside it, may look up among its globals."""
    names = dict.fromkeys(code.co_names)  # and of attributes: there is no global by such a name, or it does no harm
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(names_in(constant))
    return names


def _stored(code: types.CodeType, instructions: tuple[str, ...]) -> Iterator[str]:
    """Yields the names that a function, or one inside it, assigns or deletes; they need not be there before."""
    for step in dis.get_instructions(code):
        if step.opname in instructions:
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _stored(constant, instructions)


def _is_state(value: object) -> bool:
    """Tells whether a global may change what a function computes: modules of Python stay what they are."""
    return not isinstance(value, types.ModuleType)


def is_library(function: types.FunctionType) -> bool:
    """Tells whether a library defines a function: what it holds is no data of the program."""
    return function.__module__ is None or is_machinery(function.__module__)
