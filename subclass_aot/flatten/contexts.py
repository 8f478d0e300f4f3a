"""Contexts as metas hold them: without symbolic numbers, for which a context has no slots."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import torch

from subclass_aot._torch import is_nested_int

_PLAIN: dict[type, Callable[[Any], object]] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def known(value: Any) -> Any:
    """What a value is in this call, if it is a symbolic number or holds some: their solver has a guard for each then.

    Looks into tuples, lists, dicts, dataclasses, and what these or the value have for attributes. What holds none is
    given back; else, a copy.
    """
    if type(value) in _PLAIN and not is_nested_int(value):
        return _PLAIN[type(value)](value)
    if isinstance(value, tuple | list):
        parts = [known(x) for x in value]
        if all(map(operator.is_, parts, value)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        items = {key: known(x) for key, x in value.items()}
        return value if all(items[key] is x for key, x in value.items()) else items
    if isinstance(value, type) or callable(value):
        return value
    is_dataclass = dataclasses.is_dataclass(value)
    held = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)} if is_dataclass else _numbers_of(value)
    changed = {name: new for name, x in held.items() if (new := known(x)) is not x}
    if not changed:
        return value
    made = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(made, name, new)  # also where it is frozen
    return made


def _numbers_of(value: object) -> dict[str, Any]:
    """The attributes of an object that are symbolic numbers, or may hold some themselves."""
    kinds = (torch.SymInt, torch.SymFloat, torch.SymBool, tuple, list, dict)
    return {name: x for name, x in getattr(value, "__dict__", {}).items() if isinstance(x, kinds)}
