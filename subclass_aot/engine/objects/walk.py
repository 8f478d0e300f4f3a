"""The Python objects that a call reaches: what they hold, table by table, and how to get from one to the next.

Note [Objects of a call]
~~~~~~~~~~~~~~~~~~~~~~~~
Lists, dicts, attributes of objects and modules, closures: a program reads tensors from them and puts others there. So
they are walked like arguments. The tensors found are inputs, Python values are constants of the signature, and
while the function is traced the very same objects hold traced tensors; they get their own back at the end, whatever
happens. What the function changed is found by comparing each table with what it held before, and is done again at each
call (`outcome/`). Objects are compared by what they hold, not by identity: a new cache of the same shape fits.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.bytecode import only_appends
from subclass_aot.base.put_back import PutBack
from subclass_aot.base.weak import REFERENT, is_weak, make_weak, referent, weak_kind
from subclass_aot.engine.objects.access_path import AccessPath, Entry, Named, Pinned
from subclass_aot.engine.objects.holders import Entries, HeldTensor, Holder, Watched
from subclass_aot.engine.objects.nodes import (
    METHODS_IN_C,
    SIZES,
    Node,
    NumberAt,
    ObjectAt,
    TensorAt,
    TupleAt,
    ValueAt,
    WeakAt,
    is_replaced,
    make_tuple,
    tensor_of,
    value_of,
    with_other_ids,
)
from subclass_aot.engine.objects.numbers_apart import numbers_apart
from subclass_aot.engine.objects.stepped import NotStepped, stand_in_for
from subclass_aot.engine.objects.untracked_state import (
    put_back_generators,
    refuse_changed,
    state_of,
)
from subclass_aot.engine.tables import (
    ATOMS,
    HOOKS,
    MODULE_TABLES,
    Reached,
    Table,
    extras_of,
    has_vars,
    stands_for_another,
    tables_of,
)
from subclass_aot.errors import PlanError

LIMIT = 20_000
"""How many objects that are no tensors one call may reach. More are no data, but a program's whole state."""

_PLAIN = ATOMS - {type}
"""Classes of values that hold nothing, and neither does what they are of."""

_TOO_MANY = """{path}: more than {limit} Python objects are reached from here.
  All of them would be compared at each call.
  Instead: pass what the function needs of it as arguments of their own."""


_IN_KEY = """{path}: a key is a tuple that holds tensors. Looking one up reads values of tensors.
  Instead: use a list of pairs, or keys that are strings."""

_IN_SET = """{path}: a set that holds tensors. It has no order that is the same in each process.
  Instead: pass a list, or a dict of tensors by name."""


class Objects:
    """A walk over all that some roots reach.

    Args:
        whole_modules: Whether parameters, buffers and submodules of modules are walked, too, and not only what else a
            module has in its `__dict__`.
        extras: Gives the tables of what a program put on a tensor.
        changing: Paths at which a number is to be a symbol.
        without_hooks: A module whose own hooks do not count, since they run around what is called.

    Attributes:
        holders: The objects.
        tensors: The tensors.
        leaves: The nodes of flattened arguments, by their positions.
        watched: What cannot be walked, and gives its state.
        identities: Tensors that the objects may know by their ids, by these.
        named: Objects of the call that are the same at each, by their paths.
        reached: The positions of classes, and of their methods that may run.
        settings: Settings of torch that functions read which were met.
        with_vars: Values with attributes, and how to get to them, by their ids. See Note [Attributes of values].
    """

    # More than ten attributes: four tables of what was found, two of where the walk is, and its options.

    def __init__(
        self,
        whole_modules: bool = False,
        extras: Callable[[torch.Tensor], list[Table]] = extras_of,
        changing: Collection[str] = (),
        without_hooks: torch.nn.Module | None = None,
    ) -> None:
        self.holders: list[Holder] = []
        self.tensors: list[HeldTensor] = []
        self.leaves: dict[int, Node] = {}
        self.watched: list[Watched] = []
        self._is_unchanged = False  # when what is watched was compared
        self.identities: dict[int, torch.Tensor] = {}
        self.named: Mapping[str, Any] = {}
        self._changing = changing
        self._extras = extras
        self._whole_modules = whole_modules
        self._without_hooks = without_hooks
        self._position: dict[int, int] = {}
        self._later: deque[int] = deque()
        self._holding_tensors = 0
        self._rebuilt: dict[int, Any] = {}
        self._numbers: dict[int, Any] = {}  # what the function is given in place of those that change
        self._stand_ins: dict[int, NotStepped] = {}
        self.settings: dict[str, None] = {}
        self._module_name: str | None = None
        self._may_run = Reached()
        self.reached: list[int] = []
        self.with_vars: dict[int, tuple[Any, AccessPath]] = {}

    @property
    def modules(self) -> list[tuple[str, torch.nn.Module]]:
        """Modules that were found, with their paths."""
        return [(h.path, h.value) for h in self.holders if isinstance(h.value, torch.nn.Module)]

    @property
    def numbers_apart(self) -> set[int]:
        """The numbers of what stands for numbers that are read apart from what is beside them."""
        return numbers_apart(self.holders)

    @property
    def gradients(self) -> set[int]:
        """The numbers of tensors that are the `.grad` of a leaf of autograd's graph."""
        of_leaves = (h for h in self.holders if isinstance(h.value, torch.Tensor) and h.value.is_leaf)
        tables = (entries for holder in of_leaves for table, entries in holder.tables if table.kind == "grad")
        return {node.number for entries in tables for _, node in entries if isinstance(node, TensorAt)}

    def position_of(self, value: object) -> int | None:
        """Returns where an object stands among the holders."""
        position = self._position.get(id(value))  # the id of what is gone may belong to another object by now
        return position if position is not None and self.holders[position].value is value else None

    def root(self, value: object, path: str, pinned: bool, access_path: AccessPath | None = None) -> Node:
        """Walks everything that `value` leads to. `access_path` is how generated code begins to get there.

        Raises:
            PlanError: It is too much.
        """
        # Other functions of the file of the first one are the user's, too: the globals that they name are walked.
        if pinned and isinstance(value, types.FunctionType) and self._module_name is None:
            self._module_name = value.__module__
        node = self._node(value, path, access_path or AccessPath(path), pinned)
        self.walk()
        return node

    def access_path_to(self, value: object, path: str) -> AccessPath:
        """Returns how to get to an object that is the same at each call.

        Args:
            value: The object.
            path: Its path, if it is one of `named`.
        """
        return AccessPath(Named(path) if self.named.get(path) is value else Pinned(value))

    def leaf(self, position: int, value: object, path: str) -> None:
        """Walks everything that a flattened argument leads to."""
        self.leaves[position] = self.root(value, path, False, AccessPath("leaves", (position,)))

    def replaced_leaves(self, values: Sequence[Any], stand_ins: bool) -> Iterator[tuple[int, Any]]:
        """Yields what a function sees in place of flattened arguments, by their positions.

        Args:
            values: For each of `tensors`, what is put in its place.
            stand_ins: Whether what has a stand-in is replaced, too.
        """
        for position, node in self.leaves.items():
            if is_replaced(node):
                yield position, self._built(node, values, stand_ins)

    def watch(self, path: str, value: object) -> None:
        """Notes the state of what cannot be walked, if it gives it."""
        state = state_of(value)
        if state is not None:
            self.watched.append(Watched(path, value, state))

    def put_back_generators(self) -> None:
        """Gives generators of random numbers that are watched the states that they had, unless nothing has changed."""
        if not self._is_unchanged:
            put_back_generators(self.watched)

    def refuse_changed(self, elsewhere: Sequence[str] = (), line: str = "") -> None:
        """Compares the state of what is watched with what it was.

        Args:
            elsewhere: Of which generators of the process beside torch's the program has drawn.
            line: Where it has, if that is known.

        Raises:
            MutationError: An array was written.
            OnlyInEagerModeError: A random number was drawn, a file was read, or a step of an iterator was asked for.
        """
        self._is_unchanged = False
        if self.watched or elsewhere:
            refuse_changed(self.watched, line, elsewhere)
        self._is_unchanged = True

    def walk(self) -> None:
        """Walks what was noted only. Not by recursion: lists of users may be linked, and long."""
        while self._later:
            while self._later:
                self._fill(self._later.popleft())
            for method in self._may_run.methods():
                self._reach(method, method.__qualname__)

    def _reach(self, value: object, path: str) -> None:
        """Notes a class, or a function in one: it is the same at each call, whatever leads there."""
        if self.position_of(value) is None:
            self._object(value, path, AccessPath(Pinned(value)), True)
            position = self.position_of(value)
            if position is not None:
                self.reached.append(position)

    def reach_classes(self, cls: type) -> None:
        """Notes a class, and those it derives from, of which the user may change attributes."""
        for base in self._may_run.add_class(cls):
            self._reach(base, base.__qualname__)

    def _node(self, value: Any, path: str, access_path: AccessPath, pinned: bool) -> Node:
        """Notes what stands at a path; what an object holds is walked later."""
        kind = type(value)
        if (kind is float or kind is int and abs(value) in SIZES) and path in self._changing:
            self.tensors.append(HeldTensor(tensor_of(value), path, pinned, True))
            return NumberAt(len(self.tensors) - 1, kind, kind is int and value < 0)
        if issubclass(kind, type):
            self.reach_classes(value)
            return ValueAt(value)
        if kind in ATOMS:
            return ValueAt(value)
        if is_weak(value):  # before all else: a proxy says that it is a tensor if it leads to one
            target = self._node(referent(value), f"{path}()", access_path.then(REFERENT), pinned)
            return ValueAt(value) if isinstance(target, ValueAt) else WeakAt(value, target)
        if isinstance(value, torch.Tensor):
            number = len(self.tensors)
            self.tensors.append(HeldTensor(value, path, pinned))
            self.attributes_of(value, path, pinned, AccessPath("held", (number,)))
            return TensorAt(number)
        if isinstance(value, tuple):
            if kind is not tuple:
                self.reach_classes(kind)
            elements = enumerate(tuple.__iter__(value))
            parts = tuple(self._node(x, f"{path}[{i}]", access_path.then(i), pinned) for i, x in elements)
            if kind is not tuple and has_vars(kind):
                return self._with_vars(value, parts, path, access_path, pinned)
            return TupleAt(value, parts) if any(map(_is_more, parts)) else ValueAt(value)
        if kind is types.MethodType:  # Python makes one at each access: it is what its object and its function are
            owner = self._node(value.__self__, f"{path}.__self__", access_path.then("__self__"), pinned)
            function = self._node(value.__func__, path, access_path.then("__func__"), pinned)
            both_known = isinstance(owner, ValueAt) and isinstance(function, ValueAt)
            return ValueAt(value) if both_known else TupleAt(value, (owner, function))
        if kind in METHODS_IN_C and not isinstance(value.__self__, type | types.ModuleType | None):
            owner = self._node(value.__self__, f"{path}.__self__", access_path.then("__self__"), pinned)
            return TupleAt(value, (owner, ValueAt(value.__name__))) if _is_more(owner) else ValueAt(value)
        if has_vars(kind):
            return self._with_vars(value, (ValueAt(value_of(value)),), path, access_path, pinned)
        return self._object(value, path, access_path, pinned)

    def _with_vars(
        self, value: object, parts: tuple[Node, ...], path: str, access_path: AccessPath, pinned: bool
    ) -> TupleAt:
        """Notes a tuple, a number or a text with attributes. See Note [Attributes of values]."""
        self.with_vars.setdefault(id(value), (value, access_path))
        self.reach_classes(type(value))
        attributes = self._node(value.__dict__, f"{path}.__dict__", access_path.then("__dict__"), pinned)
        return TupleAt(value, (*parts, attributes))

    def _object(self, value: Any, path: str, access_path: AccessPath, pinned: bool) -> Node:
        """Notes an object: by its position, if it holds others or may change."""
        kind = type(value)
        if id(value) in _torch.flags.by_function:
            self.settings[_torch.flags.by_function[id(value)]] = None
        known = self.position_of(value)
        only_grows = kind is list and self._only_appended_to(access_path)
        if known is not None:
            if self.holders[known].only_grows and not only_grows:  # somebody else reads it
                self.holders[known].only_grows = False
                self._later.append(known)
            return ObjectAt(known)
        tables = tables_of(value, pinned, self._module_name, self._whole_modules)
        if value is self._without_hooks:
            tables = [table for table in tables if table.kind not in HOOKS]
        if not tables:
            self.reach_classes(kind)
            self.watch(path, value)
            return ValueAt(value, self._stand_in(value, path))
        if len(self.holders) - self._holding_tensors >= LIMIT:
            parent = access_path.start.holder if isinstance(access_path.start, Entry) else None
            raise PlanError(_TOO_MANY.format(path=self._root_path(parent, path), limit=LIMIT))
        position = self._position[id(value)] = len(self.holders)
        pinned = pinned or isinstance(value, torch.nn.Module)  # guards compare modules by identity
        self.holders.append(Holder(path, value, access_path, pinned, [(t, []) for t in tables], only_grows))
        if isinstance(value, types.FunctionType):
            self._may_run.add_function(value)
        elif not isinstance(value, type):
            self.reach_classes(kind)
        self._later.append(position)
        return ObjectAt(position)

    def _stand_in(self, value: object, path: str) -> NotStepped | None:
        """Returns what stands for an iterator and the like, the same wherever it is met."""
        known = self._stand_ins.get(id(value))
        if known is None and (known := stand_in_for(value, path)) is not None:
            self._stand_ins[id(value)] = known  # which holds it, so that its id stays its own
        return known

    def _root_path(self, parent: int | None, path: str) -> str:
        """Returns what leads to an object: an argument, or what the function holds by a name."""
        while parent is not None:
            holder = self.holders[parent]
            if holder.parent is None and holder.pinned:
                return path
            parent, path = holder.parent, holder.path
        return path

    def attributes_of(self, tensor: torch.Tensor, path: str, pinned: bool, access_path: AccessPath) -> None:
        """Notes what a program put on a tensor, as in `weight.scale = ...`; `walk` goes on from there."""
        tables = self._extras(tensor) if id(tensor) not in self._position else []
        if tables:
            self._position[id(tensor)] = len(self.holders)
            self._later.append(len(self.holders))
            self._holding_tensors += 1
            self.holders.append(Holder(path, tensor, access_path, pinned, [(t, []) for t in tables]))

    @contextmanager
    def restored(self, modules: Iterable[torch.nn.Module] = ()) -> Iterator[None]:
        """Gives every object, and every module of `modules`, what it held before the block, whatever happens."""
        # Hooks are not written: they are read only, to find what they hold.
        before = [(t, h.value, t.read(h.value)) for h in self.holders for t, _ in h.tables if t.kind not in HOOKS]
        before += [(t, module, t.read(module)) for module in modules for t in map(Table, MODULE_TABLES)]
        with PutBack(partial(Objects.restore, before)):
            yield

    @staticmethod
    def restore(before: Iterable[tuple[Table, object, list[tuple[Any, Any]]]]) -> None:
        """Makes objects hold what was read of their tables."""
        for table, holder, contents in before:
            if not Table.same(table.read(holder), contents):  # most are as they were, and writing costs more
                table.write(holder, contents)

    def put(
        self, values: Sequence[Any], fake: Callable[[Holder], Any], stand_ins: bool, ids: Mapping[int, int]
    ) -> None:
        """Puts other tensors into the objects.

        Args:
            values: For each of `tensors`, what is put in its place.
            fake: For a tensor on which a program put something, the one that gets it.
            stand_ins: Whether what has a stand-in is replaced, too.
            ids: The ids of the new tensors, by those of the old ones: an object may hold these, and know tensors by
                them.
        """
        for holder in self.holders:
            for table, entries in holder.tables:
                if table.kind in HOOKS:
                    continue
                contents = [
                    (
                        values[key.number] if isinstance(key, TensorAt) else with_other_ids(key, ids),
                        with_other_ids(self._built(node, values, stand_ins), ids),
                    )
                    for key, node in entries
                ]
                if isinstance(holder.value, torch.Tensor):
                    table.put_on(fake(holder), contents)
                elif any(isinstance(key, TensorAt) or is_replaced(node) for key, node in entries) or (
                    not ids.keys().isdisjoint(self.numbers(entries))
                ):
                    table.write(holder.value, contents)
                elif isinstance(holder.value, torch.nn.Module):
                    self._put_what_was_walked(vars(holder.value), entries)

    def forget_rebuilt(self) -> None:
        """Forgets what was made of other tensors: next time it is made of yet others."""
        self._rebuilt.clear()
        self._numbers.clear()

    def _put_what_was_walked(self, attributes: dict[str, Any], entries: Entries) -> None:
        """Puts objects back that another thread has exchanged since the walk, as pickling a recurrent layer may."""
        for key, node in entries:
            if isinstance(node, ObjectAt):
                walked = self.holders[node.position].value
                if attributes.get(key) is not walked:  # type: ignore[call-overload]
                    attributes[key] = walked  # type: ignore[index]

    with_other_ids = staticmethod(with_other_ids)

    @staticmethod
    def numbers(entries: Entries) -> Iterator[int]:
        """Yields the numbers in a table, and those in tuples, any of which may be an id."""
        todo = [x for key, node in entries for x in (key, node.value if isinstance(node, ValueAt) else None)]
        while todo:
            value = todo.pop()
            if type(value) is int:
                yield value
            elif type(value) is tuple:
                todo += value

    def found(self, entries: Entries) -> list[tuple[Any, Any]]:
        """Returns what stood in a table when it was walked."""
        return [
            (self.tensors[key.number].tensor if isinstance(key, TensorAt) else key, self.found_at(node))
            for key, node in entries
        ]

    def found_at(self, node: Node) -> Any:
        """Returns what stood at a node when it was walked."""
        if isinstance(node, TensorAt):
            return self.tensors[node.number].tensor
        return node.value if isinstance(node, TupleAt | WeakAt) else self._built(node, (), False)

    def _built(self, node: Node, values: Sequence[Any], stand_ins: bool) -> Any:
        """Makes what stands at a node, of other tensors."""
        match node:
            case TensorAt():
                return values[node.number]
            case NumberAt():
                number = self._numbers.get(node.number)
                if number is None:
                    number = self._numbers[node.number] = node.of(values[node.number])
                return number
            case TupleAt() if not is_replaced(node):
                return node.value
            case TupleAt():
                known = self._rebuilt.get(id(node.value))
                if known is None:
                    known = make_tuple(node.cls, [self._built(part, values, stand_ins) for part in node.parts])
                    if has_vars(node.cls):  # a program may see whether two are one
                        self._rebuilt[id(node.value)] = known
                return known
            case ObjectAt():
                return self.holders[node.position].value
            case WeakAt():
                if not is_replaced(node):
                    return node.value
                return make_weak(weak_kind(node.value), self._built(node.target, values, stand_ins))
            case ValueAt():
                return node.stand_in if stand_ins and node.stand_in is not None else node.value

    def _fill(self, position: int) -> None:
        """Reads the tables of an object."""
        holder = self.holders[position]
        for table, entries in holder.tables:
            contents = table.read(holder.value)
            later: list[int] = []  # most values are plain, and nothing leads on
            entries.clear()
            for number, (key, value) in enumerate(contents):
                entries.append((key, ValueAt(value)))
                if type(value) not in _PLAIN or type(key) not in _PLAIN or self._changing:
                    later.append(number)
            if holder.only_grows:
                continue
            if len(later) > 1 and not table.has_order:
                later.sort(key=[str(key) for key, _ in contents].__getitem__)
            for number in later:
                entries[number] = self._entry(position, table, number, *contents[number])

    def _entry(self, position: int, table: Table, number: int, key: Any, value: Any) -> tuple[object, Node]:
        """Notes what stands at a key, or at a position, of a table of an object."""
        holder, key_node = self.holders[position], key
        path = table.path(holder.path, key, number)
        if isinstance(key, torch.Tensor):
            key_node = self._node(key, f"a key of {path}", AccessPath(holder.path), holder.pinned)
        elif isinstance(key, tuple):
            refuse_key(key, holder.path)
        if table.kind == "members" and isinstance(value, torch.Tensor):
            raise PlanError(_IN_SET.format(path=holder.path))
        if table.kind == "globals" and table.is_of_another_file(holder.value, value):
            return key_node, ValueAt(value)  # it is compared, and not walked
        if table.kind == "class" and table.is_function(value):
            return key_node, ValueAt(value)  # those that may run are found by names
        if table.kind == "state":
            self.tensors.append(HeldTensor(value, path, holder.pinned, of_generator=True))
            return key_node, TensorAt(len(self.tensors) - 1)
        return key_node, self._node(value, path, AccessPath(Entry(position, table, key)), holder.pinned)

    def _only_appended_to(self, access_path: AccessPath) -> bool:
        """Returns whether a list is reached by a name of a function that appends to it and does nothing else."""
        entry = access_path.start
        if access_path.steps or not isinstance(entry, Entry) or entry.table.kind not in ("cells", "globals"):
            return False
        return only_appends(self.holders[entry.holder].value.__code__, entry.key)


def _is_more(node: Node) -> bool:
    """Returns whether a node is more than a constant."""
    return not isinstance(node, ValueAt) or node.stand_in is not None


def refuse_key(key: object, path: str) -> None:
    """Refuses a key of a dict that reads a value of tensors when it is looked up.

    Raises:
        PlanError: It is a tuple with a tensor inside.
    """
    if isinstance(key, tuple):
        for part in key:
            if isinstance(part, torch.Tensor):
                raise PlanError(_IN_KEY.format(path=path))
            refuse_key(part, path)


def parts_of(fn: object) -> Iterator[tuple[str, Any]]:
    """Yields what a function brings beside its arguments, each with what errors call it."""
    if isinstance(fn, types.MethodType):
        yield "self", fn.__self__
        yield fn.__name__, fn.__func__
    elif isinstance(fn, types.FunctionType | functools.partial) or stands_for_another(fn):
        yield "fn", fn
    elif not isinstance(fn, types.BuiltinFunctionType | type):
        yield "self", fn
        if not isinstance(fn, torch.nn.Module):
            yield "__call__", type(fn).__dict__.get("__call__")
