"""The Python objects that a call reaches: what they hold, table by table, and how to get from one to the next.

Note [Objects of a call]
~~~~~~~~~~~~~~~~~~~~~~~~
Lists, dicts, attributes of objects and modules, closures: a program reads tensors from them and puts others there. So
they are walked like arguments. The tensors found are inputs, Python values are constants of the signature, and
while the function is traced the very same objects hold traced tensors; they get their own back at the end, whatever
happens. What the function changed is found by comparing each table with what it held before, and is done again at each
call (`outcome.py`). Objects are compared by what they hold, not by identity: a new cache of the same shape fits.
"""

from __future__ import annotations

import argparse
import collections
import dis
import enum
import functools
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.errors import PlanError

LIMIT = 20_000
"""Objects that one call may reach. More are no data, but a program's whole state."""

_TOO_MANY = """{path}: more than {limit} Python objects are reached from here.
  All of them would be compared at each call.
  Instead: pass what the function needs of it as arguments of their own."""


_IN_SET = """{path}: a set that holds tensors. It has no order that is the same in each process.
  Instead: pass a list, or a dict of tensors by name."""


@dataclass(frozen=True, slots=True)
class TensorAt:
    """A tensor, by its number among all that were found."""

    number: int


@dataclass(frozen=True, slots=True)
class NumberAt:
    """A number that the function changes from call to call: the size of a tensor without elements. See `sized`."""

    number: int


@dataclass(frozen=True, slots=True)
class ObjectAt:
    """An object of the walk, by its position. `weakly` if only a weak reference leads there."""

    position: int
    weakly: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TupleAt:
    """A tuple of any class by what it holds, or a method by its object and its function.

    It cannot change, and is rebuilt where something inside does.
    """

    value: Any
    parts: tuple[Node, ...]

    @property
    def cls(self) -> type:
        """Its class."""
        return type(self.value)


@dataclass(frozen=True, slots=True, eq=False)
class ValueAt:
    """A Python value: a constant of the signature."""

    value: Any


Node = TensorAt | NumberAt | ObjectAt | TupleAt | ValueAt


def sized(number: int) -> torch.Tensor:
    """A tensor that brings a number into a graph: its first size, which may be a symbol like any other."""
    return torch.empty(number, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Pinned:
    """Where a path begins: an object that is the same at each call."""

    value: Any


@dataclass(frozen=True, slots=True)
class Table:
    """One of the places where an object holds others.

    Attributes:
        kind: "attributes", "slots", "elements", "items", "members", "cells", "globals", "partial", "grad" (of a
            tensor), or the name of one of a module's tables.
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


@dataclass(slots=True, eq=False)
class Holder:
    """An object that holds others.

    Attributes:
        path: Where the user finds it.
        value: The object.
        parent: The position of the object that it was first reached from, None for a root.
        steps: How to get there from the parent: a table, a key, and positions in tuples. For a root its path, and
            positions in tuples; for a tensor one of the places where it stands.
        tables: What it holds, table by table.
        only_grows: Whether it is a list to which closures append, and with which they do nothing else. Then what stands
            in it is no part of the signature, and it may be longer at each call.
        pinned: Whether it is the same object at each call: the function holds it, or it is a module.
    """

    path: str
    value: Any
    parent: int | None
    steps: tuple[Any, ...]
    pinned: bool
    tables: list[tuple[Table, list[tuple[Any, Node]]]] = field(default_factory=list)
    only_grows: bool = False

    @property
    def is_bare(self) -> bool:
        """Whether it is an object that holds nothing: a program may use it for what it is."""
        return type(self.value) not in _CONTAINERS and not any(entries for _, entries in self.tables)


class Objects:
    """A walk over all that some roots reach.

    Args:
        whole_modules: Whether parameters, buffers and submodules of modules are walked, too, and not only what else a
            module has in its `__dict__`.
        extras: Gives the tables of what a program put on a tensor.
        changing: Paths at which a number is to be a symbol.

    Attributes:
        holders: The objects.
        tensors: The tensors, each with its path and whether only pinned objects lead there.
        counted: Which of them stand for numbers.
        modules: Modules that were found, with their paths.
        buffers: Arrays of numpy and the like, with their paths and what they hold.
    """

    def __init__(
        self,
        whole_modules: bool = False,
        extras: Callable[[torch.Tensor], list[Table]] | None = None,
        changing: Collection[str] = (),
    ) -> None:
        self._changing = changing
        self.counted: set[int] = set()
        self._extras = extras_of if extras is None else extras
        self.holders: list[Holder] = []
        self.tensors: list[tuple[torch.Tensor, str, bool]] = []
        self.modules: list[tuple[str, torch.nn.Module]] = []
        self.buffers: list[tuple[str, Any, bytes]] = []
        self._whole_modules = whole_modules
        self._position: dict[int, int] = {}
        self._later: deque[int] = deque()
        self._module_name: str | None = None

    def position_of(self, value: Any) -> int | None:
        """Where an object stands among the holders."""
        position = self._position.get(id(value))
        return position if position is not None and self.holders[position].value is value else None

    def root(self, value: Any, path: str, pinned: bool, steps: tuple[Any, ...] = ()) -> Node:
        """Walks everything that `value` leads to. `steps` is how generated code begins to get there.

        Raises:
            PlanError: It is too much.
        """
        if pinned and isinstance(value, types.FunctionType) and self._module_name is None:
            self._module_name = value.__module__
        node = self._node(value, path, None, steps or (path,), pinned)
        self.walk()
        return node

    def walk(self) -> None:
        """Looks into what was noted only."""
        while self._later:
            self._fill(self._later.popleft())

    def _node(self, value: Any, path: str, parent: int | None, steps: tuple[Any, ...], pinned: bool) -> Node:
        kind = type(value)
        if kind is int and value >= 2 and path in self._changing:
            self.tensors.append((sized(value), path, pinned))
            self.counted.add(len(self.tensors) - 1)
            return NumberAt(len(self.tensors) - 1)
        if kind in _ATOMS:
            return ValueAt(value)
        if isinstance(value, torch.Tensor):
            number = len(self.tensors)
            self.tensors.append((value, path, pinned))
            self.attributes_of(value, path, pinned, ("held", number))
            return TensorAt(number)
        if kind is weakref.ref:
            target = value()
            position = None if target is None else self.position_of(target)
            return ValueAt(value) if position is None else ObjectAt(position, weakly=True)
        if isinstance(value, tuple) and kind is not torch.Size:
            parts = tuple(self._node(x, f"{path}[{i}]", parent, (*steps, i), pinned) for i, x in enumerate(value))
            if all(isinstance(p, ValueAt) for p in parts):
                return ValueAt(value)
            return TupleAt(value, parts)
        if kind is types.MethodType:
            owner = self._node(value.__self__, f"{path}.__self__", parent, (*steps, "__self__"), pinned)
            function = self._node(value.__func__, path, parent, (*steps, "__func__"), pinned)
            both_known = isinstance(owner, ValueAt) and isinstance(function, ValueAt)
            return ValueAt(value) if both_known else TupleAt(value, (owner, function))
        known = self.position_of(value)
        only_grows = kind is list and self._only_appended_to(parent, steps)
        if known is not None:
            if self.holders[known].only_grows and not only_grows:
                self.holders[known].only_grows = False
                self._later.append(known)
            return ObjectAt(known)
        tables = self._tables(value, pinned)
        if not tables:
            if getattr(kind, "__hash__", None) is None and (content := bytes_of(value)) is not None:
                self.buffers.append((path, value, content))
            return ValueAt(value)
        if len(self.holders) >= LIMIT:
            raise PlanError(_TOO_MANY.format(path=self.holders[0].path, limit=LIMIT))
        position = self._position[id(value)] = len(self.holders)
        pinned = pinned or isinstance(value, torch.nn.Module)
        self.holders.append(Holder(path, value, parent, steps, pinned, [(t, []) for t in tables], only_grows))
        self._later.append(position)
        if isinstance(value, torch.nn.Module):
            self.modules.append((path, value))
        return ObjectAt(position)

    def attributes_of(self, tensor: torch.Tensor, path: str, pinned: bool, steps: tuple[Any, ...]) -> None:
        """Notes what a program put on a tensor, as in `weight.scale = ...`; `walk` goes on from there."""
        tables = self._extras(tensor) if id(tensor) not in self._position else []
        if tables:
            self._position[id(tensor)] = len(self.holders)
            self._later.append(len(self.holders))
            self.holders.append(Holder(path, tensor, None, steps, pinned, [(t, []) for t in tables]))

    @contextmanager
    def restored(self, modules: Iterable[torch.nn.Module]) -> Iterator[None]:
        """Gives every object, and every module of `modules`, what it held before the block; whatever happens."""
        before = [(t, h.value, t.read(h.value)) for h in self.holders for t, _ in h.tables if t.kind not in HOOKS]
        before += [(t, module, t.read(module)) for module in modules for t in map(Table, MODULE_TABLES)]
        try:
            yield
        finally:
            for table, holder, contents in before:
                if not same_contents(table.read(holder), contents):
                    table.write(holder, contents)

    def put(self, values: Sequence[Any], stand_in: Callable[[Holder], Any]) -> None:
        """Puts other tensors into the objects.

        Args:
            values: For each of `tensors`, what is put in its place.
            stand_in: For a tensor on which a program put something, the one that gets it.
        """
        for holder in self.holders:
            for table, entries in holder.tables:
                if table.kind in HOOKS:
                    continue
                contents = [(self._built(key, values), self._built(node, values)) for key, node in entries]
                if isinstance(holder.value, torch.Tensor):
                    table.put_on(stand_in(holder), contents)
                elif any(_holds_tensor(part) for entry in entries for part in entry):
                    table.write(holder.value, contents)

    def value_of(self, node: Any) -> Any:
        """What was found at a node; a key that is no node stands for itself."""
        if isinstance(node, TensorAt):
            return self.tensors[node.number][0]
        return node.value if isinstance(node, TupleAt) else self._built(node, ())

    def _built(self, node: Any, values: Sequence[Any]) -> Any:
        if isinstance(node, TensorAt):
            return values[node.number]
        if isinstance(node, NumberAt):
            return values[node.number].size(0)
        if isinstance(node, TupleAt):
            return make_tuple(node.cls, [self._built(part, values) for part in node.parts])
        if isinstance(node, ObjectAt):
            value = self.holders[node.position].value
            return weakref.ref(value) if node.weakly else value
        return node.value if isinstance(node, ValueAt) else node

    def _fill(self, position: int) -> None:
        holder = self.holders[position]
        for table, entries in holder.tables:
            entries.clear()
            if holder.only_grows:
                entries += [(key, ValueAt(value)) for key, value in table.read(holder.value)]
                continue
            for key, value in table.read(holder.value):
                path = holder.path + table.step(key)
                if table.kind in ("cells", "globals"):
                    path = str(key)
                key_node = key
                if isinstance(key, torch.Tensor):
                    key_node = self._node(key, f"a key of {holder.path}", position, (), holder.pinned)
                if table.kind == "members" and isinstance(value, torch.Tensor):
                    raise PlanError(_IN_SET.format(path=holder.path))
                if table.kind == "globals" and _is_of_another_file(value, holder.value):
                    entries.append((key_node, ValueAt(value)))  # compared, and not looked into
                else:
                    entries.append((key_node, self._node(value, path, position, (table, key), holder.pinned)))

    def _only_appended_to(self, parent: int | None, steps: tuple[Any, ...]) -> bool:
        """Whether a list is reached by a name of a function that appends to it and does nothing else."""
        if parent is None or len(steps) != 2 or steps[0].kind not in ("cells", "globals"):
            return False
        return only_appends(self.holders[parent].value.__code__, steps[1])

    def _tables(self, value: Any, pinned: bool) -> list[Table]:
        if isinstance(value, torch.nn.Module):
            found = [Table("attributes", but=BOOKKEEPING), *(Table(n) for n in HOOKS if value.__dict__.get(n))]
            return found + [Table(name) for name in MODULE_TABLES] if self._whole_modules else found
        if isinstance(value, types.FunctionType):
            return self._function_tables(value) if pinned or not _is_library(value) else []
        if type(value) is functools.partial:
            return [Table("partial")]
        if isinstance(value, _SEALED):
            return []
        return object_tables(value) or ([Table("attributes", ("__wrapped__",))] if stands_for_another(value) else [])

    def _function_tables(self, function: types.FunctionType) -> list[Table]:
        """A closure, and the globals that a function of the user's file names."""
        found = [Table("cells")] if function.__closure__ else []
        if not _is_library(function):
            found.append(Table("attributes", but=_OF_FUNCTIONS))
        if function.__module__ == self._module_name and not _is_library(function):
            there, stored = function.__globals__, set(_stored_globals(function.__code__))
            names = tuple(n for n in _names_in(function.__code__) if n in stored or n in there and _is_state(there[n]))
            if names:
                found.append(Table("globals", names))
        return found


def same_contents(one: list[tuple[Any, Any]], other: list[tuple[Any, Any]]) -> bool:
    """Whether two readings of a table found the very same objects at the same keys, in the same order."""
    return len(one) == len(other) and all(
        v is w and (k is j or _key(k) == _key(j)) for (k, v), (j, w) in zip(one, other, strict=True)
    )


def make_tuple(cls: type, parts: Iterable[Any]) -> Any:
    """A tuple of any class, from what it holds."""
    if cls is tuple:
        return tuple(parts)
    if cls is types.MethodType:
        owner, function = parts
        return types.MethodType(function, owner)
    try:
        return tuple.__new__(cls, parts)
    except TypeError:  # what C functions return, such as the pair of values and indices
        return cls(parts)


def bytes_of(value: Any) -> bytes | None:
    """What an array holds that is no tensor; None if it is none."""
    try:
        with memoryview(value) as view:
            return view.tobytes()
    except (TypeError, ValueError, BufferError, NotImplementedError):
        return None


def stands_for_another(value: Any) -> bool:
    """Whether it is a compiled function, or another of a library's, and what it was made of is all there is to it.

    An object of a user's class that decorates a function has attributes beside it.
    """
    return "__wrapped__" in getattr(value, "__dict__", ()) and not is_data(type(value))


def _holds_tensor(node: Any) -> bool:
    return isinstance(node, TensorAt | NumberAt) or isinstance(node, TupleAt) and any(map(_holds_tensor, node.parts))


def parts_of(fn: Any) -> Iterator[tuple[str, Any]]:
    """What a function brings beside its arguments, each with what errors call it."""
    if isinstance(fn, types.MethodType):
        yield "self", fn.__self__
        yield fn.__name__, fn.__func__
    elif isinstance(fn, types.FunctionType | functools.partial) or stands_for_another(fn):
        yield "fn", fn
    elif not isinstance(fn, types.BuiltinFunctionType | type):
        yield "self", fn
        if not isinstance(fn, torch.nn.Module):
            yield "__call__", type(fn).__dict__.get("__call__")


def extras_with_grad(tensor: torch.Tensor) -> list[Table]:
    """The same as `extras_of`, and the `.grad` of a leaf that wants one."""
    return extras_of(tensor) + [Table("grad")] * (tensor.requires_grad and tensor.is_leaf)


def extras_of(tensor: torch.Tensor) -> list[Table]:
    """The table of what a program put on a tensor: its `__dict__`, less what belongs to the class or to torch."""
    names = getattr(tensor, "__dict__", None)
    if not names:
        return []
    own = {name for name in names if name.startswith(("_dynamo_", "_is_param"))}
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
    if cls in _CONTAINERS:
        return True
    if not can_be_made(cls):  # it has more than can be seen
        return False
    if issubclass(cls, (int, float, complex, str, bytes, frozenset, enum.Enum, BaseException)):
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
    return all(base in (object, *_CONTAINERS, types.SimpleNamespace) for base in built_in)


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


def only_appends(code: types.CodeType, name: str) -> bool:
    """Whether a function, and those inside it, use what a name stands for in `name.append(...)` alone."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "COPY_FREE_VARS", "MAKE_CELL")]
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if step.argval == name and step.opname.endswith(("DEREF", "GLOBAL", "GLOBALS", "NAME")):
            loads = step.opname in ("LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME")
            if not (loads and after is not None and after.argval in ("append", "extend")):
                return False
    return all(only_appends(c, name) for c in code.co_consts if isinstance(c, types.CodeType))


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


def _is_of_another_file(value: Any, function: types.FunctionType) -> bool:
    return isinstance(value, types.FunctionType) and value.__module__ != function.__module__


def _is_library(function: types.FunctionType) -> bool:
    return function.__module__ is None or function.__module__.split(".")[0] in _MACHINERY | {"torch"}


_tables_of: weakref.WeakKeyDictionary[type, tuple[Table, ...]] = weakref.WeakKeyDictionary()
_OF_FUNCTIONS = frozenset({"__wrapped__"})  # what `functools.wraps` notes is in the closure, too
_HEAP_TYPE = 1 << 9  # in `__flags__`: a class that was made by a class statement
_CONTAINERS = (list, dict, set, deque, OrderedDict, defaultdict)
_ATOMS = frozenset({int, float, bool, complex, str, bytes, type(None), type, torch.dtype, torch.device, torch.layout,
                    torch.memory_format, torch.Size, slice, range, type(...), torch.SymInt})  # fmt: skip
_SEALED = (type, types.ModuleType, types.BuiltinFunctionType, types.GeneratorType)
_MACHINERY = (frozenset(sys.stdlib_module_names) - {"__main__", "argparse", "collections", "types"}) | {
    "numpy", "optree", "sympy", "pytest", "_pytest", "hypothesis", "tqdm", "PIL", "pandas", "subclass_aot",
}  # fmt: skip
_TORCH_DATA = ("torch.optim", "torch.nn", "torch.distributions", "torch.amp", "torch.testing")
MODULE_TABLES = ("_parameters", "_buffers", "_modules")
"""The tables of every module that hold tensors and modules."""

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""The tables of every module that hold functions which run when it is called."""

BOOKKEEPING = frozenset(vars(torch.nn.Module())) - {"training"}
"""What stands in the `__dict__` of every module, and says nothing of what this one computes."""
