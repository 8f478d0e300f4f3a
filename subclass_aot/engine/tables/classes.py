"""Decides by class which objects are walked: containers and what users define, not the machinery of libraries."""

from __future__ import annotations

import argparse
import collections
import enum
import types
import weakref
from collections import OrderedDict, defaultdict, deque

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.tables.holders import is_holder
from subclass_aot.engine.tables.owners import MACHINERY, is_machinery, is_users, module_of
from subclass_aot.engine.tables.table import HEAP_TYPE, Table

CONTAINERS = (list, dict, set, deque, OrderedDict, defaultdict)
"""Classes of Python whose objects hold others, and that classes of users derive from."""

ATOMS = frozenset({int, float, bool, complex, str, bytes, type(None), type, torch.dtype, torch.device, torch.layout,
                    torch.memory_format, torch.Size, slice, range, type(...), torch.SymInt})  # fmt: skip
"""Classes of values that hold no tensor and cannot change: most of what a walk meets."""

_NUMBERS = (int, float, complex, str, bytes, frozenset)

_GENERATOR = torch.Generator  # in a trace, another class has its name

_TORCH_DATA = ("torch.optim", "torch.nn", "torch.distributions", "torch.amp", "torch.testing")
"""Modules of torch whose objects are a program's data, such as distributions and optimizers."""

# Classes that a function makes are gone when it is over; and most objects are of few classes.
_tables_of: weakref.WeakKeyDictionary[type, tuple[Table, ...]] = weakref.WeakKeyDictionary()


def object_tables(value: object) -> list[Table]:
    """Returns the tables of an object that is no tensor, module or function; none if it is not walked."""
    if isinstance(value, _GENERATOR) and _torch.generator.is_own_generator(value):
        return [Table("state")]
    cls = type(value)
    tables = _tables_of.get(cls)
    if tables is None:
        tables = _tables_of[cls] = _class_tables(cls)
    return list(tables)


def _class_tables(cls: type) -> tuple[Table, ...]:
    """Returns the tables of all objects of a class, the one of its elements first."""
    if is_holder(cls):
        return (Table("held"),)
    slots = _slots_of(cls)
    has_slots = bool(slots) and _is_value(cls) and not is_machinery(module_of(cls))
    if not is_data(cls) and not has_slots:
        return ()
    tables = []
    if issubclass(cls, dict):
        tables.append(Table("items"))
    elif issubclass(cls, list | deque):
        tables.append(Table("elements"))
    elif issubclass(cls, set):
        tables.append(Table("members"))
    if cls.__dictoffset__:
        tables.append(Table("attributes"))
    if slots:
        tables.append(Table("slots", slots))
    return tuple(tables)


def is_data(cls: type) -> bool:
    """Returns whether objects of a class are walked."""
    if cls in CONTAINERS:
        return True
    if not can_be_made(cls):  # it has more than can be seen
        return False
    if issubclass(cls, (*_NUMBERS, enum.Enum, BaseException)):
        return False
    if cls in (types.SimpleNamespace, argparse.Namespace) or cls.__module__ == collections.__name__:
        return True
    name = module_of(cls)
    top = name.split(".")[0]
    if top == "torch":
        return name.startswith(_TORCH_DATA)
    return top not in MACHINERY


def has_data(cls: type) -> bool:
    """Returns whether attributes of a class are walked: a class statement of the user's, and no class of tensors."""
    return bool(cls.__flags__ & HEAP_TYPE) and not issubclass(cls, torch.Tensor) and is_users(module_of(cls))


def can_be_made(cls: type) -> bool:
    """Returns whether what Python shows of an object is all there is: another can be made without the constructor."""
    if cls is _GENERATOR:
        return True
    # A class written in C has state that no attribute shows.
    built_in = [base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE]
    return all(base in (object, *CONTAINERS, types.SimpleNamespace) for base in built_in)


def is_object(key: object) -> bool:
    """Returns whether a key of a dict is an object that may hold others."""
    return type(key) not in ATOMS and not isinstance(key, torch.Tensor) and bool(object_tables(key))


def has_vars(cls: type) -> bool:
    """Returns whether objects of a class are tuples, numbers or texts that have attributes beside what they are.

    Such an object is walked as what it is, and its `__dict__` as the dict that it is. See Note [Attributes of values].
    """
    found = _has_vars.get(cls)
    if found is None:
        is_one = _is_value(cls) and bool(cls.__dictoffset__) and not _slots_of(cls)
        found = _has_vars[cls] = is_one and not is_machinery(module_of(cls))
    return found


def _is_value(cls: type) -> bool:
    return issubclass(cls, (tuple, *_NUMBERS)) and not issubclass(cls, enum.Enum)


_has_vars: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def stands_for_another(value: object) -> bool:
    """Returns whether it is a library's wrapper of a function, a compiled one for example, and has nothing beside that.

    An object of a user's class that decorates a function has attributes beside it.
    """
    return "__wrapped__" in getattr(value, "__dict__", ()) and not is_data(type(value))


def _slots_of(cls: type) -> tuple[str, ...]:
    """Returns the names of all slots, as `getattr` takes them."""
    names: list[str] = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            # Python puts the name of the class before a private name, so that `__x` of two classes are two slots.
            mangled = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and name[-2:] != "__" else name
            if isinstance(base.__dict__.get(mangled), types.MemberDescriptorType):
                names.append(mangled)
    return tuple(names)
