"""The facts of a call: the one place that lists what a signature depends on. See Note [Facts]."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import optree
import torch

from subclass_aot import _torch
from subclass_aot.aliasing import autograd_base, has_storage, is_autograd_leaf, storage_groups
from subclass_aot.call import ArgumentPlace, Arguments, HeldPlace, ModulePlace, Place
from subclass_aot.facts.code import read_once
from subclass_aot.facts.constants import constant, hash_of
from subclass_aot.facts.fact import Code, Fact, Facts, History, Hooks, Itself, Kind, Linked, Storages, Value
from subclass_aot.facts.look import look_of
from subclass_aot.facts.modes import MODES, Modes
from subclass_aot.facts.scope import Scope
from subclass_aot.flatten import FlattenPlan, SubclassCreationMeta, walk
from subclass_aot.objects import Holder, nodes
from subclass_aot.tables import HOOKS, Table
from subclass_aot.weak import is_weak

Places = Mapping[str, str]
"""Sizes and strides that are symbols, such as `args[0].size(1)`, and what is said instead."""

NOWHERE: Places = MappingProxyType({})


def facts_of(arguments: Arguments, state: Modes, scope: Scope = Scope(), places: Places = NOWHERE) -> Facts:  # noqa: B008
    """Lists everything that a signature depends on of a call.

    Args:
        arguments: The call.
        state: The modes of torch.
        scope: What of it counts.
        places: The sizes and strides that are symbols.
    """
    with read_once():
        return tuple(_Reader(arguments.with_views(scope.views), state, scope, places).read())


def relations_of(arguments: Arguments, scope: Scope) -> Facts:
    """Lists those facts that are about what tensors have to do with one another, with autograd and with objects.

    Args:
        arguments: The call, in which what stands for views is a view by now.
        scope: What of it counts.
    """
    return tuple(_Reader(arguments, (), scope, NOWHERE).relations())


class _Reader:
    """Reads one call."""

    def __init__(self, arguments: Arguments, state: Modes, scope: Scope, places: Places) -> None:
        self.arguments = arguments
        self.state = state
        self.scope = scope
        self.places = places
        self.objects = arguments.objects
        self.asked = dict(scope.absent)
        self.origins = _Origins(arguments)
        self.linked = _links(arguments, self.origins.objects)

    def read(self) -> Iterator[Fact]:
        """Yields the facts, those that are cheap and often differ first."""
        arguments = self.arguments
        yield Fact("structure of the arguments", Kind.STRUCTURE, _structure(arguments.treespec))
        for name, mode in zip(MODES, self.state, strict=True):
            yield Fact(name, Kind.MODE, constant(mode))
        if arguments.with_grad:
            yield Fact("gradients of the inputs", Kind.GRADIENTS, None)
        for position, node in self.objects.leaves.items():
            yield from self.node(f"Python value {position}", node, True, "")
        for name, part in arguments.held:
            if self.objects.position_of(part) is None:
                yield Fact(name, Kind.VALUE, constant(part), False)
        for position, holder in enumerate(self.objects.holders):
            yield from self.holder(position, holder)
        for path, module in arguments.modules:
            yield from self.module(path, module)
        yield from self.tensors()
        yield from self.bases()
        yield from self.beginnings()
        yield from self.relations()
        if self.scope.lists:
            twice = tuple(sorted(arguments.passed_twice.values()))
            yield Fact("the lists and dicts that are passed twice", Kind.TWICE, twice)

    def node(self, path: str, node: nodes.Node, of_call: bool, within: str) -> Iterator[Fact]:
        """Yields what stands at a place."""
        value: Value
        match node:
            case nodes.ValueAt(value=found):
                yield _value(path, found, of_call, within)
                return
            case nodes.TensorAt():
                kind, value = Kind.STANDS, "a tensor"
            case nodes.NumberAt():
                kind, value = Kind.STANDS, "a number"
            case nodes.ObjectAt():
                kind, value = Kind.OBJECT, self.linked[node.position]
            case nodes.WeakAt():
                kind, value = Kind.STANDS, Code.of(type(node.value))
                yield from self.node(f"{path}()", node.target, of_call, within)
            case nodes.TupleAt():
                kind, value = Kind.STANDS, Code.of(node.cls)
                is_method = node.cls is types.MethodType
                steps = (".__self__", ".__func__") if is_method else [f"[{i}]" for i in range(len(node.parts))]
                for step, part in zip(steps, node.parts, strict=True):
                    yield from self.node(path + step, part, of_call, within)
        yield Fact(path, kind, value, of_call, within)

    def holder(self, position: int, holder: Holder) -> Iterator[Fact]:
        """Yields what an object is and what it holds, table by table."""
        value, path, of_call = holder.value, holder.path, self.origins.objects[position]
        label = self.linked[position].label
        is_tensor, is_function = isinstance(value, torch.Tensor), isinstance(value, types.FunctionType)
        if not is_tensor:
            yield Fact(path, Kind.CLASS, Code.of(value if is_function else type(value)), of_call, label)
        is_bare = holder.is_bare and path not in self.scope.written
        if isinstance(value, torch.nn.Module) or is_bare and not is_function and not is_tensor:
            yield Fact(path, Kind.IDENTITY, Itself(value), of_call, label)
        limit = Table.limit_of(value)
        if limit is not None:
            yield Fact(path, Kind.LIMIT, constant(limit), of_call, label)
        if holder.only_grows:
            return
        asked = self.asked.get(self.arguments.position_of(holder)) if is_tensor and self.asked else None
        for table, entries in holder.tables:
            if asked is None:
                yield from self.table(holder, table, entries, of_call, label)
                continue
            for key, node in entries:
                if key in asked or table.kind != "attributes":
                    yield from self.node(path + table.step(key), node, of_call, f"{table.kind} of {label}, {key}")

    def table(
        self, holder: Holder, table: Table, entries: list[tuple[object, nodes.Node]], of_call: bool, label: str
    ) -> Iterator[Fact]:
        """Yields what one table of an object holds."""
        path, kind = holder.path, table.kind
        within = f"{kind} of {label}" if table.module is None else f"globals of {table.module} in {label}"
        if kind == "members":
            yield from self.members(holder, entries, of_call, within)
            return
        if kind in HOOKS:
            hooks = getattr(holder.value, kind)
            functions = tuple(Code.of(hook) for hook in hooks.values())
            yield Fact(f"{path}.{kind}", Kind.HOOKS, Hooks(tuple(hooks), functions), of_call, within)
        elif kind == "elements":
            yield Fact(path, Kind.LENGTH, len(entries), of_call, within)
        elif kind != "keys":
            in_order = kind in ("items", "weakly")
            keys = [key for key, _ in entries if not isinstance(key, nodes.TensorAt)]
            yield Fact(path, Kind.KEYS, constant(tuple(keys if in_order else sorted(map(str, keys)))), of_call, within)
        for i, (key, node) in enumerate(entries):
            step = f"[{i}]" if isinstance(key, nodes.TensorAt) or kind in HOOKS else table.step(key)
            where = table.path(path, key)
            if step == f"[{i}]":
                where = (f"{path}.{kind}" if kind in HOOKS else path) + step
            if isinstance(key, nodes.TensorAt):
                yield from self.node(f"a key of {path}{step}", key, of_call, f"{within}, {i}")
            if (
                isinstance(node, nodes.ValueAt)
                and type(node.value) is int
                and (told := hash_of(holder.value, node.value))
            ):
                yield Fact(where, Kind.VALUE, told, of_call, f"{within}, {i}")
            else:
                yield from self.node(where, node, of_call, f"{within}, {i}")

    def members(
        self, holder: Holder, entries: list[tuple[object, nodes.Node]], of_call: bool, within: str
    ) -> Iterator[Fact]:
        """Yields what a set holds, which has no order. Objects in it must be the same ones."""
        values = {node.value for _, node in entries if isinstance(node, nodes.ValueAt)}
        yield Fact(holder.path, Kind.VALUE, constant(values), of_call, within)
        others = [(i, node) for i, (_, node) in enumerate(entries) if not isinstance(node, nodes.ValueAt)]
        for i, node in others:
            yield from self.node(f"{holder.path}[{i}]", node, of_call, f"{within}, {i}")
        if others:
            ids = tuple(sorted(map(id, set.__iter__(holder.value))))
            yield Fact(holder.path, Kind.IDENTITY, ids, of_call, within)

    def module(self, path: str, module: torch.nn.Module) -> Iterator[Fact]:
        """Yields what a module has by name; the tensors and the submodules have facts of their own."""
        of_call = self.origins.of_module(module)
        tables = (("parameters", _torch.parameters_of(module)), ("buffers", _torch.buffers_of(module)))
        names = tuple((kind, *sorted((name, x is None) for name, x in table.items())) for kind, table in tables)
        yield Fact(path, Kind.NAMES, names, of_call)
        paths = {id(known): where for where, known in reversed(self.arguments.modules)}
        children = sorted((name, paths.get(id(child))) for name, child in _torch.submodules_of(module).items())
        yield Fact(path, Kind.CHILDREN, tuple(children), of_call)

    def tensors(self) -> Iterator[Fact]:
        """Yields the metadata of each tensor, or at which other place it stands."""
        arguments, count = self.arguments, len(self.arguments.values)
        every = (*arguments.values, *arguments.views)
        for place, position in arguments.placed:
            path, tensor, of_call = place.path, every[position], self.origins.of_place(place)
            first = arguments.path_of(position)
            if path in arguments.changing:
                yield Fact(path, Kind.NUMBER, self.places.get(f"{path}.size(0)", str(tensor.size(0))), of_call)
            elif first != path:
                yield Fact(path, Kind.SAME, first, of_call)
            else:
                differentiates = self.scope.differentiates and tensor.requires_grad and position < count
                is_leaf = is_autograd_leaf(tensor) if differentiates else None
                yield Fact(path, Kind.TENSOR, look_of(tensor, path, self.places, is_leaf), of_call)

    def bases(self) -> Iterator[Fact]:
        """Yields the metadata of tensors of which only views are passed."""
        arguments = self.arguments
        given = {position for _, position in arguments.placed}
        for position, value in enumerate(arguments.values):
            if position not in given:  # only views of it are passed
                path = arguments.path_of(position)
                is_leaf = is_autograd_leaf(value) if self.scope.differentiates and value.requires_grad else None
                yield Fact(path, Kind.TENSOR, look_of(value, path, self.places, is_leaf))

    def relations(self) -> Iterator[Fact]:
        """Yields what tensors have to do with one another, with autograd and with objects."""
        arguments = self.arguments
        views = zip(arguments.views, arguments.view_of, arguments.paths_of_views, strict=True)
        for position, (view, base, path) in enumerate(views, len(arguments.values)):
            rules = _torch.view_rules(view) if _torch.is_view(view) else None
            yield Fact(path, Kind.VIEW, (rules, arguments.path_of(base)), within=str(position))
        if self.scope.writes:
            yield from self.memory()
        for position, number in arguments.identified.items():
            yield Fact(arguments.path_of(position), Kind.ADDRESS, number, within=str(position))

    def beginnings(self) -> Iterator[Fact]:
        """Yields where wrappers say that they begin, which results that are made like them say, too."""
        arguments, counts = self.arguments, self.scope.offsets
        for position, (value, meta) in enumerate(zip(arguments.values, arguments.plan.metas, strict=True)):
            if isinstance(meta, SubclassCreationMeta):
                path, of_call = arguments.path_of(position), self.origins.of_place(arguments.place_of(position)[0])
                for inside, _, of_part in walk(value, meta):
                    if isinstance(of_part, SubclassCreationMeta) and (counts is None or (position, inside) in counts):
                        yield Fact(path + inside, Kind.OFFSET, of_part.storage_offset, of_call)

    def memory(self) -> Iterator[Fact]:
        """Yields which leaves share memory, how they lie in it, and which tensors have one history."""
        arguments = self.arguments
        leaves, slots = list(arguments.plan.unwrap(arguments.values)), arguments.plan.index_map.slots
        paths = [arguments.path_of(slot.outer) + "".join(slot.path) for slot in slots]
        if arguments.views:  # for single use: this plan generates code that runs once
            plan, count = FlattenPlan.of(arguments.views), len(arguments.values)
            leaves += plan.unwrap(arguments.views)
            paths += [arguments.path_of(count + slot.outer) + "".join(slot.path) for slot in plan.index_map.slots]
        shared = storage_groups(leaves)
        together = {slot for group in shared for slot in group}
        bases = [base for base in self.scope.bases if together.isdisjoint(base) and max(base) < len(leaves)]
        groups = shared + bases
        together |= {slot for group in groups for slot in group}
        # One of each group stands for it: storages that were two are two.
        alone = [slot for slot, leaf in enumerate(leaves) if has_storage(leaf) and slot not in together]
        alone += [group[0] for group in groups if has_storage(leaves[group[0]])]
        yield Fact("leaves that share storage", Kind.STORAGE, Storages(tuple(shared), tuple(alone)))
        for group in groups:
            for slot in group:
                yield Fact(paths[slot], Kind.OFFSET, leaves[slot].storage_offset(), within=str(slot))
            first = group[0]
            yield Fact(paths[first], Kind.BYTES, leaves[first].untyped_storage().nbytes(), within=str(first))
        yield from self.histories(shared)

    def histories(self, groups: Sequence[tuple[int, ...]]) -> Iterator[Fact]:
        """Yields which tensors that share memory have one history, where autograd sees that one is written."""
        arguments, slots = self.arguments, self.arguments.plan.index_map.slots
        written = self.scope.seen_by_autograd
        for group in groups:
            positions = sorted({slots[s].outer for s in group if s < len(slots)})
            for i, j in ((i, j) for i in positions for j in positions if i != j and (written is None or i in written)):
                one = autograd_base(arguments.values[i]) is autograd_base(arguments.values[j])
                yield Fact(arguments.path_of(i), Kind.HISTORY, History(arguments.path_of(j), (i, j), one))


def _value(path: str, value: object, of_call: bool, within: str) -> Fact:
    if not is_weak(value) and isinstance(value, types.FunctionType | type):
        return Fact(path, Kind.CODE, Code.of(value), of_call, within)
    return Fact(path, Kind.VALUE, constant(value), of_call, within)


def _structure(treespec: optree.PyTreeSpec) -> tuple[Any, ...]:
    entries = [entry for accessor in treespec.accessors() for entry in accessor]
    classes = tuple(dict.fromkeys(Code.of(entry.type).thing for entry in entries))
    return treespec, tuple(type(entry.entry) for entry in entries), classes


class _Origins:
    """The objects and tensors to which the arguments of a call lead first, and not the function.

    Attributes:
        objects: By the position of an object.
        tensors: By the number of a tensor that objects hold.
    """

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments
        self.objects: list[bool] = []
        self.tensors: dict[int, bool] = {}
        for node in arguments.objects.leaves.values():
            self._note(node, True)
        for holder in arguments.objects.holders:  # each was met in one before it
            parent = holder.parent
            of_call = self._of_root(holder) if parent is None else self.objects[parent]
            self.objects.append(of_call)
            for _, entries in holder.tables:
                for key, node in entries:
                    self._note(node, of_call)
                    if isinstance(key, nodes.TensorAt):
                        self._note(key, of_call)

    def of_place(self, place: Place) -> bool:
        """Says it of a tensor by where it stands."""
        match place:
            case ArgumentPlace():
                return True
            case ModulePlace():
                return self.of_module(place.module)
            case HeldPlace():
                return self.tensors[place.number]

    def of_module(self, module: torch.nn.Module) -> bool:
        """Says it of a module."""
        position = self.arguments.objects.position_of(module)
        assert position is not None
        return self.objects[position]

    def _of_root(self, holder: Holder) -> bool:
        start, steps = holder.way
        if start == "place":
            return self.of_place(self.arguments.places[int(steps[0])])
        if start == "held":
            return self.tensors[int(steps[0])]
        return start == "leaves" or is_of_call(holder.path)

    def _note(self, node: nodes.Node, of_call: bool) -> None:
        match node:
            case nodes.TensorAt() | nodes.NumberAt():
                self.tensors.setdefault(node.number, of_call)
            case nodes.TupleAt():
                for part in node.parts:
                    self._note(part, of_call)
            case nodes.WeakAt():
                self._note(node.target, of_call)
            case nodes.ObjectAt() | nodes.ValueAt():
                pass


_OF_CALL = re.compile(r"(a key of )?(args|kwargs)(\W|$)")


def is_of_call(path: str) -> bool:
    """Returns whether something is reached by the arguments, and not by the function alone, by what the user calls
    it.
    """
    return _OF_CALL.match(path) is not None


def _links(arguments: Arguments, of_call: Sequence[bool]) -> list[Linked]:
    """Returns a name for each object.

    Those of the call and those of the function are counted apart, since a file may go without.
    """
    counts = {"call": 0, "function": 0}
    found = []
    for holder, is_of in zip(arguments.objects.holders, of_call, strict=True):
        of = "call" if is_of else "function"
        found.append(Linked(holder.path, f"{of} {counts[of]}"))
        counts[of] += 1
    return found
