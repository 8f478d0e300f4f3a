"""One table of an object: reading it, and making it hold something else.

Classes of users may override what reads and writes a container. So tables act below them, by the methods of `list`,
`dict` and so on: a walk must see what is there, and must not run code of the program.
"""

from __future__ import annotations

import enum
import functools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.tables.holders import View, view_of
from subclass_aot.engine.tables.of_thread import ThreadTable
from subclass_aot.engine.tables.owners import is_users
from subclass_aot.errors import LastingChangeError

Kind = (
    Literal[
        "attributes",
        "slots",
        "elements",
        "items",
        "weakly",
        "keys",
        "members",
        "cells",
        "globals",
        "class",
        "partial",
        "grad",
        "state",
        "data",
        "held",
    ]
    | _torch.modules.ModuleTable
    | _torch.modules.HookTable
)

Contents = list[tuple[Any, Any]]
"""Names, keys or positions, and what stands there."""

HEAP_TYPE = 1 << 9
"""In `__flags__`: a class that was made by a class statement."""

MODULE_TABLES: tuple[Kind, ...] = _torch.modules.MODULE_TABLES
"""The tables of every module that hold tensors and modules."""

_NAMED = frozenset(
    {"grad", "state", "data", "held", "attributes", "slots", "class", "partial", *_torch.modules.MODULE_TABLES}
)
"""Kinds of tables of which each key is the name of an attribute."""

_WITHOUT_ORDER: frozenset[Kind] = frozenset({"attributes", "class"})
"""Kinds of tables of which it does not count in which order keys came. What stands at two of them is met first at the
one that is first by name, whichever came first.
"""

_OF_NAMED_TUPLES = frozenset({"_fields", "_field_defaults"})
"""What Python puts on the class of named tuples."""

HOOKS: tuple[Kind, ...] = _torch.modules.MODULE_HOOKS
"""The tables of every module that hold functions which run when it is called."""


@dataclass(frozen=True, slots=True)
class Table:
    """One of the places where an object holds others.

    Attributes:
        kind: Which; "held" is what a view gives (see `holders.py`),
            "keys" are those that are objects, "weakly" are the items of a dict that holds its keys or values
            weakly, "grad" is that of a tensor, "data" its memory, "state" that of a generator, and the last are dicts
            of a module.
            "class" are the attributes of a class: data, and the functions and the like that it has.
        only: If not None, only these keys belong to it.
        but: These do not.
        public: Whether names that begin with an underscore do not, either: those are the business of the class.
        module: Of globals, the name by which a function has the module whose globals they are; else its own.
    """

    kind: Kind
    only: tuple[str, ...] | None = None
    but: frozenset[str] = frozenset()
    public: bool = False
    module: str | None = None

    UNSEEN: ClassVar = frozenset[object]()
    """Among what is watched: something of which no comparison by identity shows that it is unchanged."""

    @property
    def has_order(self) -> bool:
        """Whether it counts in which order the keys came."""
        return self.kind not in _WITHOUT_ORDER

    def read(self, holder: object) -> Contents:
        """Returns what stands in the table now."""
        match self.kind:
            case "elements":
                return list(enumerate(self.methods_of(holder).__iter__(holder)))
            case "members":
                assert isinstance(holder, set)
                return list(enumerate(set.__iter__(holder)))
            case "keys":
                assert isinstance(holder, dict)
                return list(enumerate(dict.keys(holder)))
            case "slots":
                # A slot that nothing was assigned to is no attribute.
                return [(name, getattr(holder, name)) for name in self.only or () if hasattr(holder, name)]
            case "cells":
                return [(name, cell.cell_contents) for name, cell in _cells(holder)]
            case "weakly" | "held":
                items: Any = view_of(holder) if self.kind == "held" else holder
                return list(items.items())
            case "grad":
                assert isinstance(holder, torch.Tensor)
                return [("grad", self.gradient_of(holder))]
            case "state":
                assert isinstance(holder, torch.Generator)
                return [("get_state()", _torch.generator.generator_state(holder))]
            case "class":
                assert isinstance(holder, type)
                return [(k, v) for k, v in vars(holder).items() if Table.is_of_class(holder, k, v)]
            case "partial":
                assert isinstance(holder, functools.partial)
                return [("func", holder.func), ("args", holder.args), ("keywords", holder.keywords)]
        mapping = self.mapping(holder)
        if self.only is not None:
            return [(name, mapping[name]) for name in self.only if name in mapping]
        has = self.has if self.public else {*mapping}.difference(self.but).__contains__
        return [(k, v) for k, v in Table.methods_of(mapping).items(mapping) if has(k)]

    def has(self, key: object) -> bool:
        """Returns whether a key belongs to the table, by what is left out of it."""
        return key not in self.but and not (self.public and isinstance(key, str) and key.startswith("_"))

    def is_of_another_file(self, holder: object, value: object) -> bool:
        """Returns whether a global of a function is a function of a library that another file defines."""
        is_function = type(value) is types.FunctionType and not is_users(value.__module__)
        return is_function and value.__module__ != holder.__module__

    def mapping(self, holder: object) -> dict[Any, Any]:
        """Returns the dict behind a table that is one."""
        if self.kind == "items":
            assert isinstance(holder, dict)
            return holder
        if self.kind == "globals":
            assert isinstance(holder, types.FunctionType)
            return holder.__globals__ if self.module is None else vars(holder.__globals__[self.module])
        found: dict[Any, Any] = holder.__dict__ if self.kind == "attributes" else holder.__dict__[self.kind]
        return found.mine if type(found) is ThreadTable else found

    def watched(self, holder: object) -> tuple[object, ...]:
        """Returns what `same_items` compares to see that the table is unchanged; `UNSEEN` where nothing shows it."""
        match self.kind:
            case "elements" | "members":
                return (holder if isinstance(holder, list) or type(holder) is set else Table.UNSEEN,)
            case "weakly" | "grad" | "state" | "held":
                return (Table.UNSEEN,)
            case "items" if isinstance(holder, OrderedDict) and len(holder) > 1:  # it has an order of its own
                return (Table.UNSEEN,)
            case "keys" | "partial":  # they are seen with the items; what it is made of cannot be replaced
                return ()
            case "class":
                return (holder,)
            case "cells":
                return tuple([cell for _, cell in _cells(holder)])
            case "slots":
                return tuple([(holder, name) for name in self.only or ()])
        mapping = self.mapping(holder)
        return (mapping,) if self.only is None else tuple([(mapping, name) for name in self.only])

    def write(self, holder: object, contents: Contents) -> None:
        """Makes the table hold `contents` and nothing else."""
        match self.kind:
            case "elements" | "members":
                self.refill(holder, [v for _, v in contents])  # the list itself stays: others may hold it
            case "keys":
                pass  # they are put where they belong with the items
            case "slots":
                self._write_slots(holder, dict(contents))
            case "cells":
                cells = dict(_cells(holder))
                for name, value in contents:
                    cells[name].cell_contents = value
            case "weakly":
                weak: Any = holder
                weak.clear()
                weak.update(contents)
            case "grad":
                assert isinstance(holder, torch.Tensor)
                holder.grad = dict(contents)["grad"]
            case "state":
                assert isinstance(holder, torch.Generator)
                _torch.generator.set_generator_state(holder, dict(contents)["get_state()"])
            case "class":
                _write_class(holder, dict(contents))
            case "held":
                _write_view(view_of(holder), dict(contents))
            case "partial":
                partial: Any = holder  # its type stub does not know of `__setstate__`
                partial.__setstate__((*(v for _, v in contents), holder.__dict__ or None))
            case _:
                self._write_mapping(self.mapping(holder), contents)

    def put_on(self, tensor: torch.Tensor, contents: Contents) -> None:
        """Puts `contents` on another tensor, beside what it has."""
        if self.kind == "grad":
            self.write(tensor, contents)
        else:
            vars(tensor).update(contents)

    def _write_slots(self, holder: object, present: dict[Any, Any]) -> None:
        """Writes attributes below what the class makes of it: a frozen dataclass refuses."""
        for name in self.only or ():
            if name in present:
                object.__setattr__(holder, name, present[name])
            elif hasattr(holder, name):
                object.__delattr__(holder, name)

    def _write_mapping(self, mapping: dict[Any, Any], contents: Contents) -> None:
        """Writes a dict in the order of `contents`. All keys are removed first only where it had another order."""
        methods = Table.methods_of(mapping)
        now = [k for k in methods.keys(mapping) if (self.only is None or k in self.only) and self.has(k)]
        then = [k for k, _ in contents]
        kept = set(map(self.key_of, then))
        stays = [k for k in now if self.key_of(k) in kept]
        ordered = list(map(self.key_of, stays)) == list(map(self.key_of, then[: len(stays)]))
        for key in now:
            if not ordered or self.key_of(key) not in kept:
                methods.__delitem__(mapping, key)
        for key, value in contents:
            methods.__setitem__(mapping, key, value)

    def step(self, key: object, number: int = 0) -> str:
        """Returns how a path goes on from the holder to what stands at a key, which is the `number`th of the table."""
        return f"::{key}" if self.kind in ("cells", "globals") else self.path("", key, number)

    def path(self, holder: str, key: object, number: int = 0) -> str:
        """Returns where the user finds what stands at a key: no two of one holder have one path.

        Args:
            holder: The path of the holder.
            key: The key. Hooks have numbers of the process for keys; tensors, modules and the like have no names.
            number: The position of the key in the table.
        """
        if self.kind in HOOKS:
            return f"{holder}.{self.kind}[{number}]"
        if self.kind in _NAMED:
            return f"{holder}.{key}"
        match self.kind:
            case "cells" | "globals":
                return str(key) if self.module is None else f"{self.module}.{key}"
            case "keys":
                return f"{holder}.keys()[{key}]"
        if isinstance(key, torch.Tensor):
            return f"{holder}[tensor {number}]"
        return f"{holder}[{key!r}]" if _has_name(key) else f"{holder}[{type(key).__name__} {number}]"

    @staticmethod
    def refill(holder: object, values: list[Any]) -> None:
        """Makes a list, a deque or a set hold `values` and nothing else, also where a signal interrupts this.

        Args:
            holder: The container; what a subclass makes of its methods does not count.
            values: What it is to hold.
        """
        if isinstance(holder, list):
            list.__setitem__(holder, slice(None), values)
            return
        methods: Any = set if isinstance(holder, set) else deque
        fill = methods.update if isinstance(holder, set) else methods.extend
        try:
            methods.clear(holder)
            fill(holder, values)
        except BaseException:
            methods.clear(holder)
            fill(holder, values)
            raise

    @staticmethod
    def key_of(key: object) -> object:
        """Returns a key as it is compared: 1 and True are two keys, tensors are compared by identity."""
        return id(key) if isinstance(key, torch.Tensor) else (type(key), key)

    @staticmethod
    def same(one: Contents, other: Contents) -> bool:
        """Returns whether two readings found the very same objects at the same keys, in the same order."""
        return len(one) == len(other) and all(
            v is w and (k is j or Table.key_of(k) == Table.key_of(j)) for (k, v), (j, w) in zip(one, other, strict=True)
        )

    @staticmethod
    def is_class_data(name: str, value: object) -> bool:
        """Returns whether an attribute of a class is data: no method, no property, and none of Python's own."""
        of_python = name.startswith("__") and name.endswith("__") or name == "_abc_impl"
        return not of_python and not Table.is_method(value)

    @staticmethod
    def is_method(value: object) -> bool:
        """Returns whether an attribute of a class is a method, a property or the like, or a class in it."""
        of_module = isinstance(getattr(value, "__dict__", {}).get("__wrapped__"), torch.nn.Module)  # it does not bind
        return isinstance(value, type) or not of_module and hasattr(type(value), "__get__")

    @staticmethod
    def is_function(value: object) -> bool:
        """Returns whether an attribute of a class is of functions alone: no data, no class, no descriptor of the
        user's.
        """
        return Table.is_method(value) and not isinstance(value, type) and not is_users(type(value).__module__)

    @staticmethod
    def is_of_class(cls: type, name: str, value: object) -> bool:
        """Returns whether an attribute of a class counts: Python puts some there itself, and has slots as it made
        them. It also puts some data on enumerations and named tuples.
        """
        if isinstance(value, types.GetSetDescriptorType | types.MemberDescriptorType):
            return False
        return Table.is_method(value) or Table.is_class_data(name, value) and not _is_of_python(cls, name, value)

    @staticmethod
    def methods_of(container: object) -> Any:
        """Returns the class whose methods act on a dict, a list or a deque itself, below what a subclass makes of it.

        An `OrderedDict` keeps its order beside the dict.
        """
        if isinstance(container, dict):
            return OrderedDict if isinstance(container, OrderedDict) else dict
        return deque if isinstance(container, deque) else list

    view_of = staticmethod(view_of)

    @staticmethod
    def gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
        """Returns the `.grad` of a leaf, or of a tensor that retains it. Of any other, asking for it warns."""
        return tensor.grad if tensor.is_leaf or tensor.retains_grad else None

    @staticmethod
    def limit_of(value: object) -> Any:
        """Returns what a container has beside its contents: a `defaultdict`'s factory, a `deque`'s greatest length."""
        if isinstance(value, defaultdict):
            return value.default_factory
        return value.maxlen if isinstance(value, deque) else None


def _is_of_python(cls: type, name: str, value: object) -> bool:
    """Returns whether Python made data of a class from the class statement: members and tables of enumerations, names
    of fields.
    """
    if issubclass(cls, enum.Enum):
        return type(value) is cls or name.startswith("_") and name.endswith("_")
    return issubclass(cls, tuple) and name in _OF_NAMED_TUPLES


def _write_class(holder: object, contents: dict[Any, Any]) -> None:
    """Gives a class these attributes, and no others that count. Its metaclass is not called."""
    assert isinstance(holder, type)
    now = dict(Table("class").read(holder))
    for name in now.keys() - contents.keys():
        type.__delattr__(holder, name)
    for name, value in contents.items():
        if name not in now or now[name] is not value:  # else Python forgets what it has found of methods
            type.__setattr__(holder, name, value)


def _write_view(view: View, contents: dict[str, Any]) -> None:
    """Has an object hold these. What cannot be removed stays: a trace puts things back in a copy of the context."""
    for name in [*view]:
        if name not in contents:
            with suppress(LastingChangeError):
                del view[name]
    for name, value in contents.items():
        if name not in view or view[name] is not value:
            view[name] = value


def _cells(function: object) -> Sequence[tuple[str, types.CellType]]:
    """Returns the filled cells of a closure, by name."""
    assert isinstance(function, types.FunctionType)
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cell.cell_contents  # noqa: B018
        except ValueError:  # it is assigned to later
            continue
        found.append((name, cell))
    return found


def _has_name(key: object) -> bool:
    """Returns whether the text of a key of a dict tells it from others: not so of what is compared by identity."""
    if isinstance(key, type | enum.Enum):
        return True
    cls = type(key)
    is_made = cls.__flags__ & HEAP_TYPE or isinstance(key, types.FunctionType)
    return not (is_made and cls.__eq__ is object.__eq__)
