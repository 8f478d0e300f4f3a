"""Compares Python values with what they were when a call was traced, for generated guards."""

from __future__ import annotations

import copy
import math
from collections import Counter, deque
from typing import Any

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.weak import is_weak
from subclass_aot.engine.tables import ATOMS, Table, has_vars, object_tables


def same_constant(a: Any, b: Any) -> bool:
    """Compares Python values to the last bit: `1`, `1.0` and `True` differ, `0.0` and `-0.0` too, NaN equals itself.

    What cannot be compared is compared by identity.
    """
    if a is b:
        return True
    if type(a) is not type(b):  # `1 == 1.0 == True`, and programs compute other things with them
        return False
    # The `==` of a number's or a text's class does not see attributes beside it.
    beside = getattr(a, "__dict__", None) or getattr(b, "__dict__", None)
    if beside and has_vars(type(a)) and not _same_vars(vars(a), vars(b)):
        return False
    if isinstance(a, tuple | list):
        if type(a) is not tuple and type(a) is not list:
            a, b = elements_of(a), elements_of(b)
        return len(a) == len(b) and all(map(same_constant, a, b))
    if isinstance(a, set | frozenset):
        # Elements of sets have no order in which to compare them one by one: equal ones, and as many of each type.
        return a == b and Counter(map(type, a)) == Counter(map(type, b))
    if hasattr(a, "tobytes") and hasattr(a, "dtype"):  # it is an array of numpy
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides and a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b) or a != a and b != b
    if isinstance(a, complex):
        return same_constant(a.real, b.real) and same_constant(a.imag, b.imag)
    try:
        equal = a == b
        return bool(equal.all()) if hasattr(equal, "all") and a.shape == b.shape else bool(equal)
    except Exception as error:  # an `__eq__` of the user may raise anything
        pass_on_interruption(error)
        return False


def kept(value: Any) -> Any:
    """Returns what a value is compared with later: a copy of what may change, if that is equal, or else the value.

    What has no hash may change, and so may attributes of a number, and what is inside a tuple or a record.
    """
    if not may_change(value):
        return value
    try:
        made = copy.deepcopy(value)
    except Exception as error:  # it cannot be copied
        pass_on_interruption(error)
        return value
    return made if same_constant(value, made) else value


def same_kept(a: Any, b: Any) -> bool:
    """Returns whether a value is what it was, as guards compare it: functions, classes and weak references by identity.

    Args:
        a: What `kept` gave then.
        b: The value now.
    """
    if is_weak(a) or is_compared_by_identity(a):
        return a is b
    return same_constant(a, b)


def is_compared_by_identity(value: object) -> bool:
    """Returns whether a value is a function, a class or the like, of which no two are equal."""
    return isinstance(value, type) or callable(value) and type(value).__eq__ is object.__eq__


def may_change(value: Any) -> bool:
    """Returns whether a value may become another one and stay the same object."""
    if type(value) in ATOMS or is_weak(value) or is_compared_by_identity(value):
        return False
    if has_vars(type(value)):
        return True
    if isinstance(value, tuple):
        return any(map(may_change, tuple.__iter__(value)))
    if type(value).__hash__ is None:
        return True
    compares_itself = "__eq__" in {name for cls in type(value).__mro__[:-1] for name in vars(cls)}
    return compares_itself and bool(getattr(value, "__dict__", None)) and bool(object_tables(value))


def same_contents(
    container: list[Any] | deque[Any] | dict[Any, Any], keys: tuple[Any, ...], values: tuple[Any, ...]
) -> bool:
    """Returns whether a list or dict holds these Python values, at these keys, in this order."""
    if not isinstance(container, dict):
        elements = elements_of(container)
        return len(elements) == len(values) and all(map(same_constant, elements, values))
    if dict.__len__(container) != len(values):
        return False
    return same_keys(container, keys) and all(map(same_constant, Table.methods_of(container).values(container), values))


def same_keys(mapping: dict[Any, Any], keys: tuple[Any, ...]) -> bool:
    """Returns whether a dict has these keys, in this order."""
    found = tuple(Table.methods_of(mapping).keys(mapping))
    pairs = zip(found, keys, strict=False)
    return found == keys and all(type(a) is type(b) is str or same_constant(a, b) for a, b in pairs)


def elements_of(holder: list[Any] | deque[Any] | tuple[Any, ...]) -> list[Any]:
    """Returns the elements themselves, below what a subclass makes of it."""
    methods: Any = next(base for base in (list, tuple, deque) if isinstance(holder, base))
    return list(methods.__iter__(holder))


def items_of(mapping: dict[Any, Any]) -> list[Any]:
    """Returns keys and values in turn."""
    return [part for item in Table.methods_of(mapping).items(mapping) for part in item]


def _same_vars(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(same_constant(value, b[name]) for name, value in a.items())
