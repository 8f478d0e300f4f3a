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

import functools
import types
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from subclass_aot.call.tables import (
    ATOMS,
    BOOKKEEPING,
    CONTAINERS,
    HOOKS,
    MODULE_TABLES,
    Table,
    extras_of,
    function_tables,
    is_library,
    is_object,
    is_of_another_file,
    object_tables,
    only_appends,
    same_contents,
    stands_for_another,
    vars_of_number,
)
from subclass_aot.call.untracked_state import NotStepped, is_stepped, state_of
from subclass_aot.errors import PlanError

LIMIT = 20_000
"""Objects that one call may reach. More are no data, but a program's whole state."""

_TOO_MANY = """{path}: more than {limit} Python objects are reached from here.
  All of them would be compared at each call.
  Instead: pass what the function needs of it as arguments of their own."""


_IN_KEY = """{path}: a key is a tuple that holds tensors. Looking one up asks tensors for values.
  Instead: use a list of pairs, or keys that are strings."""

_ON_NUMBER = """{path}: a tensor is an attribute of a {kind}, and no other one can stand in for it there.
  Instead: pass the tensor as an argument of its own, or keep it in an attribute of an ordinary object."""

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
    """A Python value: a constant of the signature. `stand_in` if the function sees another in its place."""

    value: Any
    stand_in: Any = None


Node = TensorAt | NumberAt | ObjectAt | TupleAt | ValueAt


def sized(number: int) -> torch.Tensor:
    """A tensor that brings a number into a graph: its first size, which may be a symbol like any other."""
    return torch.empty(number, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Pinned:
    """Where a path begins: an object that is the same at each call."""

    value: Any


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
        return type(self.value) not in CONTAINERS and not any(entries for _, entries in self.tables)


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
        watched: Arrays of numpy, generators of random numbers and the like, with their paths and what they hold.
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
        self.watched: list[tuple[str, Any, bytes]] = []
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

    def watch(self, path: str, value: Any) -> None:
        """Notes the state of what cannot be looked into, if it tells it."""
        state = state_of(value)
        if state is not None:
            self.watched.append((path, value, state))

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
        if kind in ATOMS:
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
            if all(isinstance(p, ValueAt) and p.stand_in is None for p in parts):
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
            self.watch(path, value)
            for name, x in vars_of_number(value).items():
                if isinstance(x, torch.Tensor):
                    raise PlanError(_ON_NUMBER.format(path=f"{path}.{name}", kind=kind.__name__))
            return ValueAt(value, NotStepped(value, path) if is_stepped(value) else None)
        if len(self.holders) >= LIMIT:
            raise PlanError(_TOO_MANY.format(path=self._way_in(parent, path), limit=LIMIT))
        position = self._position[id(value)] = len(self.holders)
        pinned = pinned or isinstance(value, torch.nn.Module)
        self.holders.append(Holder(path, value, parent, steps, pinned, [(t, []) for t in tables], only_grows))
        self._later.append(position)
        if isinstance(value, torch.nn.Module):
            self.modules.append((path, value))
        return ObjectAt(position)

    def _way_in(self, parent: int | None, path: str) -> str:
        """Where one is that leads to an object: an argument, or what the function holds by a name."""
        while parent is not None:
            holder = self.holders[parent]
            if holder.parent is None and holder.pinned:
                return path
            parent, path = holder.parent, holder.path
        return path

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

    def put(self, values: Sequence[Any], fake: Callable[[Holder], Any], stand_ins: bool) -> None:
        """Puts other tensors into the objects.

        Args:
            values: For each of `tensors`, what is put in its place.
            fake: For a tensor on which a program put something, the one that gets it.
            stand_ins: Whether what has a stand-in is replaced, too.
        """
        for holder in self.holders:
            for table, entries in holder.tables:
                if table.kind in HOOKS:
                    continue
                contents = [
                    (self._built(key, values, stand_ins), self._built(node, values, stand_ins)) for key, node in entries
                ]
                if isinstance(holder.value, torch.Tensor):
                    table.put_on(fake(holder), contents)
                elif any(_is_replaced(part) for entry in entries for part in entry):
                    table.write(holder.value, contents)

    def value_of(self, node: Any) -> Any:
        """What was found at a node; a key that is no node stands for itself."""
        if isinstance(node, TensorAt):
            return self.tensors[node.number][0]
        return node.value if isinstance(node, TupleAt) else self._built(node, (), False)

    def _built(self, node: Any, values: Sequence[Any], stand_ins: bool) -> Any:
        if isinstance(node, TensorAt):
            return values[node.number]
        if isinstance(node, NumberAt):
            return values[node.number].size(0)
        if isinstance(node, TupleAt):
            return make_tuple(node.cls, [self._built(part, values, stand_ins) for part in node.parts])
        if isinstance(node, ObjectAt):
            value = self.holders[node.position].value
            return weakref.ref(value) if node.weakly else value
        if isinstance(node, ValueAt):
            return node.stand_in if stand_ins and node.stand_in is not None else node.value
        return node

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
                elif isinstance(key, tuple):
                    refuse_key(key, holder.path)
                if table.kind == "members" and isinstance(value, torch.Tensor):
                    raise PlanError(_IN_SET.format(path=holder.path))
                if table.kind == "globals" and is_of_another_file(value, holder.value):
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
            return function_tables(value, self._module_name) if pinned or not is_library(value) else []
        if type(value) is functools.partial:
            return [Table("partial")]
        if isinstance(value, _SEALED):
            return []
        if stands_for_another(value):
            return [Table("attributes", ("__wrapped__",))]
        with_keys = isinstance(value, dict) and any(map(is_object, dict.keys(value)))
        return object_tables(value) + [Table("keys")] * with_keys


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


def refuse_key(key: Any, path: str) -> None:
    """Refuses a key of a dict that asks tensors for a value when it is looked up.

    Raises:
        PlanError: It is a tuple with a tensor inside.
    """
    if isinstance(key, tuple):
        for part in key:
            if isinstance(part, torch.Tensor):
                raise PlanError(_IN_KEY.format(path=path))
            refuse_key(part, path)


def _is_replaced(node: Any) -> bool:
    """Whether the function sees something else than what stands there."""
    if isinstance(node, TupleAt):
        return any(map(_is_replaced, node.parts))
    return isinstance(node, TensorAt | NumberAt) or isinstance(node, ValueAt) and node.stand_in is not None


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


_SEALED = (type, types.ModuleType, types.BuiltinFunctionType, types.GeneratorType)
