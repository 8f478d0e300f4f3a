"""The tables of an object: where it holds others, and which objects are looked into."""

from __future__ import annotations

import argparse
import collections
import dis
import enum
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot import _torch


@dataclass(frozen=True, slots=True)
class Table:
    """One of the places where an object holds others.

    Attributes:
        kind: "attributes", "slots", "elements", "items", "keys" (those that are objects), "members", "cells",
            "globals", "partial", "grad" (of a tensor), or the name of one of a module's tables.
        only: If not None, only these keys belong to it.
        but: These do not.
        public: Whether names that begin with an underscore do not, either: those are the business of the class.
    """

    kind: str
    only: tuple[str, ...] | None = None
    but: frozenset[str] = frozenset()
    public: bool = False

    def read(self, holder: Any) -> list[tuple[Any, Any]]:
        """Names, or positions, and what stands there now."""
        if self.kind == "elements":
            return list(enumerate(_base_of(holder).__iter__(holder)))
        if self.kind == "members":
            return list(enumerate(set.__iter__(holder)))
        if self.kind == "keys":
            return list(enumerate(dict.keys(holder)))
        if self.kind == "slots":
            return [(name, getattr(holder, name)) for name in self.only or () if hasattr(holder, name)]
        if self.kind == "cells":
            return [(name, cell.cell_contents) for name, cell in _cells(holder)]
        if self.kind == "grad":
            return [("grad", holder.grad)]
        if self.kind == "partial":
            return [("func", holder.func), ("args", holder.args), ("keywords", holder.keywords)]
        mapping = self.mapping(holder)
        if self.only is not None:
            return [(name, mapping[name]) for name in self.only if name in mapping]
        return [(k, v) for k, v in dict_methods(mapping).items(mapping) if self.has(k)]

    def has(self, key: Any) -> bool:
        """Whether a key belongs to the table, by what is left out of it."""
        return key not in self.but and not (self.public and isinstance(key, str) and key.startswith("_"))

    def mapping(self, holder: Any) -> dict[Any, Any]:
        """The dict behind a table that is one."""
        if self.kind == "items":
            return holder  # type: ignore[no-any-return]
        if self.kind == "globals":
            found: dict[Any, Any] = holder.__globals__
        elif self.kind == "attributes":
            found = holder.__dict__
        else:
            found = holder.__dict__[self.kind]
        return found

    def write(self, holder: Any, contents: list[tuple[Any, Any]]) -> None:
        """Makes the table hold `contents` and nothing else."""
        if self.kind == "elements":
            _base_of(holder).clear(holder)
            _base_of(holder).extend(holder, [v for _, v in contents])
        elif self.kind == "members":
            set.clear(holder)
            set.update(holder, [v for _, v in contents])
        elif self.kind == "keys":
            pass  # they are put where they belong with the items
        elif self.kind == "slots":
            present = dict(contents)
            for name in self.only or ():
                if name in present:
                    object.__setattr__(holder, name, present[name])
                elif hasattr(holder, name):
                    object.__delattr__(holder, name)
        elif self.kind == "cells":
            cells = dict(_cells(holder))
            for name, value in contents:
                cells[name].cell_contents = value
        elif self.kind == "grad":
            holder.grad = dict(contents)["grad"]
        elif self.kind == "partial":
            holder.__setstate__((*(v for _, v in contents), holder.__dict__ or None))
        else:
            self._write_mapping(self.mapping(holder), contents)

    def put_on(self, tensor: torch.Tensor, contents: list[tuple[Any, Any]]) -> None:
        """Puts `contents` on another tensor, beside what it has."""
        if self.kind == "grad":
            self.write(tensor, contents)
        else:
            vars(tensor).update(contents)

    def _write_mapping(self, mapping: Any, contents: list[tuple[Any, Any]]) -> None:
        methods = dict_methods(mapping)
        now = [k for k in methods.keys(mapping) if (self.only is None or k in self.only) and self.has(k)]
        then = [k for k, _ in contents]
        kept = set(map(_key, then))
        stays = [k for k in now if _key(k) in kept]
        ordered = list(map(_key, stays)) == list(map(_key, then[: len(stays)]))
        for key in now:
            if not ordered or _key(key) not in kept:
                methods.__delitem__(mapping, key)
        for key, value in contents:
            methods.__setitem__(mapping, key, value)

    def step(self, key: Any) -> str:
        """How a path goes on from the holder to what stands at `key`."""
        if self.kind in ("grad", "attributes", "slots", "partial", *MODULE_TABLES):
            return f".{key}"
        if self.kind in ("cells", "globals"):
            return f"::{key}"
        if self.kind == "keys":
            return f".keys()[{key}]"
        return f"[{key!r}]" if not isinstance(key, torch.Tensor) else "[a tensor]"


def limit_of(value: Any) -> Any:
    """What a container has beside its contents: a `defaultdict`'s factory, a `deque`'s greatest length."""
    if isinstance(value, defaultdict):
        return value.default_factory
    return value.maxlen if isinstance(value, deque) else None


def dict_methods(mapping: Any) -> Any:
    """The class whose methods act on the dict in `mapping` itself, below what a subclass makes of it."""
    return OrderedDict if isinstance(mapping, OrderedDict) else dict


def _key(key: Any) -> Any:
    """What stands for a key in comparisons: tensors, whose `==` is no bool, are compared by identity."""
    return id(key) if isinstance(key, torch.Tensor) else key


def same_contents(one: list[tuple[Any, Any]], other: list[tuple[Any, Any]]) -> bool:
    """Whether two readings of a table found the very same objects at the same keys, in the same order."""
    return len(one) == len(other) and all(
        v is w and (k is j or _key(k) == _key(j)) for (k, v), (j, w) in zip(one, other, strict=True)
    )


def extras_with_grad(tensor: torch.Tensor) -> list[Table]:
    """The same as `extras_of`, and the `.grad` of a leaf that wants one."""
    return extras_of(tensor) + [Table("grad")] * (tensor.requires_grad and tensor.is_leaf)


def extras_of(tensor: torch.Tensor) -> list[Table]:
    """The table of what a program put on a tensor: its `__dict__`, less what belongs to the class or to torch."""
    names = getattr(tensor, "__dict__", None)
    if not names:
        return []
    own = {name for name in names if _torch.is_mark(name)}
    if _torch.is_traceable_wrapper_subclass(tensor) and len(names) > len(own):
        inner, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        parts = {name: getattr(tensor, name) for name in inner}
        unflatten = type(tensor).__tensor_unflatten__  # type: ignore[attr-defined]
        own.update(vars(unflatten(parts, context, tensor.size(), tensor.stride())))
    table = Table("attributes", but=frozenset(own), public=_torch.is_traceable_wrapper_subclass(tensor))
    return [table] if any(map(table.has, names)) else []


def object_tables(value: Any) -> list[Table]:
    """The tables of an object that is no tensor, module or function; none if it cannot be looked into."""
    cls = type(value)
    tables = _tables_of.get(cls)
    if tables is None:
        tables = _tables_of[cls] = _class_tables(cls)
    return list(tables)


def _class_tables(cls: type) -> tuple[Table, ...]:
    if not is_data(cls):
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
    slots = _slots_of(cls)
    if slots:
        tables.append(Table("slots", slots))
    return tuple(tables)


def is_data(cls: type) -> bool:
    """Whether objects of a class are looked into: containers and what users define, not the machinery of libraries."""
    if cls in CONTAINERS:
        return True
    if not can_be_made(cls):  # it has more than can be seen
        return False
    if issubclass(cls, (*_NUMBERS, enum.Enum, BaseException)):
        return False
    if cls in (types.SimpleNamespace, argparse.Namespace) or cls.__module__ == collections.__name__:
        return True
    name = cls.__module__ or ""
    top = name.split(".")[0]
    if top == "torch":
        return name.startswith(_TORCH_DATA)
    return top not in _MACHINERY


def can_be_made(cls: type) -> bool:
    """Whether what Python shows of an object is all there is, so that another can be made without the constructor."""
    built_in = [base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE]
    return all(base in (object, *CONTAINERS, types.SimpleNamespace) for base in built_in)


def is_object(key: Any) -> bool:
    """Whether a key of a dict is an object that may hold others."""
    return type(key) not in ATOMS and not isinstance(key, torch.Tensor) and bool(object_tables(key))


def vars_of_number(value: Any) -> dict[str, Any]:
    """The attributes of a value whose class is a number's or a text's, with attributes beside it."""
    is_one = isinstance(value, _NUMBERS) and not isinstance(value, enum.Enum)
    return getattr(value, "__dict__", {}) if is_one else {}


def stands_for_another(value: Any) -> bool:
    """Whether it is a compiled function, or another of a library's, and what it was made of is all there is to it.

    An object of a user's class that decorates a function has attributes beside it.
    """
    return "__wrapped__" in getattr(value, "__dict__", ()) and not is_data(type(value))


def function_tables(function: types.FunctionType, module_name: str | None) -> list[Table]:
    """What a function holds: its closure, its attributes, and the globals it names if it is of the user's file."""
    found = [Table("cells")] if function.__closure__ else []
    if not is_library(function):
        found.append(Table("attributes", but=_OF_FUNCTIONS))
    if function.__module__ == module_name and not is_library(function):
        there, stored = function.__globals__, set(_stored_globals(function.__code__))
        names = tuple(n for n in _names_in(function.__code__) if n in stored or n in there and _is_state(there[n]))
        if names:
            found.append(Table("globals", names))
    return found


def only_appends(code: types.CodeType, name: str) -> bool:
    """Whether a function, and those inside it, use what a name stands for in `name.append(...)` alone."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "COPY_FREE_VARS", "MAKE_CELL")]
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if step.argval == name and step.opname.endswith(("DEREF", "GLOBAL", "GLOBALS", "NAME")):
            loads = step.opname in ("LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME")
            if not (loads and after is not None and after.argval in ("append", "extend")):
                return False
    return all(only_appends(c, name) for c in code.co_consts if isinstance(c, types.CodeType))


def _base_of(holder: Any) -> Any:
    return deque if isinstance(holder, deque) else list


def _cells(function: types.FunctionType) -> list[tuple[str, types.CellType]]:
    """The filled cells of a closure, by name."""
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cell.cell_contents  # noqa: B018
        except ValueError:  # assigned to later
            continue
        found.append((name, cell))
    return found


def _slots_of(cls: type) -> tuple[str, ...]:
    names: list[str] = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            mangled = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and name[-2:] != "__" else name
            if isinstance(base.__dict__.get(mangled), types.MemberDescriptorType):
                names.append(mangled)
    return tuple(names)


def _names_in(code: types.CodeType) -> Iterable[str]:
    """The names that a function, or one inside it, may look up among its globals."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(_names_in(constant))
    return names


def _stored_globals(code: types.CodeType) -> Iterator[str]:
    """The globals that a function, or one inside it, assigns or deletes; they need not be there before."""
    for step in dis.get_instructions(code):
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _stored_globals(constant)


def _is_state(value: Any) -> bool:
    """Whether a global may change what a function computes: modules of Python stay what they are."""
    return not isinstance(value, types.ModuleType)


def is_of_another_file(value: Any, function: types.FunctionType) -> bool:
    return isinstance(value, types.FunctionType) and value.__module__ != function.__module__


def is_library(function: types.FunctionType) -> bool:
    return function.__module__ is None or function.__module__.split(".")[0] in _MACHINERY | {"torch"}


_tables_of: weakref.WeakKeyDictionary[type, tuple[Table, ...]] = weakref.WeakKeyDictionary()
_OF_FUNCTIONS = frozenset({"__wrapped__"})  # what `functools.wraps` notes is in the closure, too
_HEAP_TYPE = 1 << 9  # in `__flags__`: a class that was made by a class statement
_NUMBERS = (int, float, complex, str, bytes, frozenset)
CONTAINERS = (list, dict, set, deque, OrderedDict, defaultdict)
ATOMS = frozenset({int, float, bool, complex, str, bytes, type(None), type, torch.dtype, torch.device, torch.layout,
                    torch.memory_format, torch.Size, slice, range, type(...), torch.SymInt})  # fmt: skip
_MACHINERY = (frozenset(sys.stdlib_module_names) - {"__main__", "argparse", "collections", "types"}) | {
    "numpy", "optree", "sympy", "pytest", "_pytest", "hypothesis", "tqdm", "PIL", "pandas", "subclass_aot",
}  # fmt: skip
_TORCH_DATA = ("torch.optim", "torch.nn", "torch.distributions", "torch.amp", "torch.testing")
MODULE_TABLES = _torch.MODULE_TABLES
"""The tables of every module that hold tensors and modules."""

HOOKS = _torch.MODULE_HOOKS
"""The tables of every module that hold functions which run when it is called."""

BOOKKEEPING = frozenset(vars(torch.nn.Module())) - {"training"}
"""What stands in the `__dict__` of every module, and says nothing of what this one computes."""
