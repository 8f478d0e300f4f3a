"""The facts of a call: the one place that lists what a signature depends on. See Note [Facts]."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.engine.aliasing import autograd_base, has_storage, storage_groups
from subclass_aot.engine.call import ArgumentPlace, Arguments, HeldPlace, ModulePlace, Place
from subclass_aot.engine.facts.code import read_once
from subclass_aot.engine.facts.constants import constant
from subclass_aot.engine.facts.fact import FLOAT, Code, Fact, Facts, History, Kind, Storages
from subclass_aot.engine.facts.metadata import metadata_of
from subclass_aot.engine.facts.modes import Modes, facts_of_modes, facts_of_settings
from subclass_aot.engine.facts.of_objects import ObjectReader
from subclass_aot.engine.facts.scope import Scope
from subclass_aot.engine.facts.sizes import facts_of_sizes
from subclass_aot.engine.objects import Holder, nodes
from subclass_aot.engine.sizes import tensors_of
from subclass_aot.kit.flatten import FlattenPlan, SubclassCreationMeta, walk


def facts_of(arguments: Arguments, state: Modes, scope: Scope = Scope()) -> Facts:  # noqa: B008
    """Lists everything that a signature depends on of a call.

    Args:
        arguments: The call.
        state: The modes of torch.
        scope: What of it counts.
    """
    with read_once():
        counting = arguments.counting(dict(scope.absent))
        reader = _Reader(counting.with_views(scope.views), state, scope)
        reader.read()
    return tuple(reader.found)


def relations_of(arguments: Arguments, state: Modes, scope: Scope) -> Facts:
    """Lists those facts that are about modes, the memory of tensors, and what they have to do with one another and with
    objects.

    Args:
        arguments: The call, in which what stands for views is a view by now.
        state: The modes of torch.
        scope: What of it counts.
    """
    reader = _Reader(arguments, state, scope)
    reader.found += facts_of_modes(state)
    reader.relations()
    return tuple(reader.found)


class _Reader:
    """Reads one call."""

    def __init__(self, arguments: Arguments, state: Modes, scope: Scope) -> None:
        self.arguments = arguments
        self.state = state
        self.scope = scope
        self.places = dict(scope.places)
        self.found: list[Fact] = []

    @cached_property
    def origins(self) -> _Origins:
        """What the arguments bring, and not the function."""
        return _Origins(self.arguments)

    @cached_property
    def views(self) -> tuple[FlattenPlan, list[Any]]:
        """How views are made of leaves, and these."""
        return FlattenPlan.read(self.arguments.views)

    @cached_property
    def leaves(self) -> list[Any]:
        """The leaves of the tensors of the call, and of views after these."""
        found = list(self.arguments.plan.leaves_of_all(self.arguments.values))
        return found + self.views[1] if self.arguments.views else found

    @cached_property
    def places_of_leaves(self) -> list[tuple[int, str]]:
        """Of each of these the position of the tensor that it is a part of, and the path from there."""
        count = len(self.arguments.values)
        found = [(slot.outer, "".join(slot.path)) for slot in self.arguments.plan.index_map.slots]
        of_views = self.views[0].index_map.slots if self.arguments.views else ()
        return found + [(count + slot.outer, "".join(slot.path)) for slot in of_views]

    def path_of(self, leaf: int) -> str:
        """Returns where the user finds one of these."""
        position, inside = self.places_of_leaves[leaf]
        return self.arguments.path_of(position) + inside

    def read(self) -> None:
        """Notes the facts, those that are cheap and often differ first."""
        arguments = self.arguments
        self.found.append(Fact("structure of the arguments", Kind.STRUCTURE, _structure(arguments.treespec)))
        self.found += facts_of_modes(self.state)
        if self.scope.settings:
            self.found += facts_of_settings(self.scope.settings)
        if arguments.with_grad:
            self.found.append(Fact("gradients of the inputs", Kind.GRADIENTS, None))
        for name, part in arguments.held:
            if arguments.objects.position_of(part) is None:
                self.found.append(Fact(name, Kind.VALUE, constant(part), False))
        self.found += ObjectReader(arguments.objects, self.origins.objects, self.scope.written).read()
        self.tensors()
        self.bases()
        if self.places:
            self.sizes()
        self.relations()
        if self.scope.lists:
            twice = tuple(sorted(arguments.passed_twice.values()))
            self.found.append(Fact("the lists and dicts that are passed twice", Kind.TWICE, twice))

    def tensors(self) -> None:
        """Notes the metadata of each tensor, or at which other place it stands."""
        arguments = self.arguments
        every = (*arguments.values, *arguments.views)
        for place, position in arguments.placed:
            path, tensor, of_call = place.path, every[position], self.origins.of_place(place)
            first = arguments.path_of(position)
            if path in arguments.changing:
                is_whole = bool(tensor.dim())
                text = self.places.get(f"{path}.size(0)", str(tensor.size(0))) if is_whole else FLOAT
                self.found.append(Fact(path, Kind.NUMBER, text, of_call, str(position)))
            elif first != path:
                self.found.append(Fact(path, Kind.SAME, first, of_call))
            else:
                metadata = metadata_of(tensor, path, self.places)
                self.found.append(Fact(path, Kind.TENSOR, metadata, of_call, str(position)))

    def sizes(self) -> None:
        """Notes what holds of sizes that are symbols."""
        numbers = {
            f"{path}.{kind}({dim})": n
            for path, tensor, _ in tensors_of(self.arguments)
            for kind, all_numbers in (("size", tensor.size()), ("stride", tensor.stride()))
            for dim, n in enumerate(all_numbers)
        }
        self.found += facts_of_sizes(numbers, self.scope)

    def bases(self) -> None:
        """Notes the metadata of tensors of which only views are passed."""
        arguments = self.arguments
        given = {position for _, position in arguments.placed}
        for position, value in enumerate(arguments.values):
            if position not in given:  # only views of it are passed
                path = arguments.path_of(position)
                self.found.append(Fact(path, Kind.TENSOR, metadata_of(value, path, self.places), within=str(position)))

    def relations(self) -> None:
        """Notes what counts of the memory of tensors, and what they have to do with one another and with objects."""
        arguments = self.arguments
        for position, value in enumerate(arguments.values if self.scope.differentiates else ()):
            if value.requires_grad:
                of_call = self.origins.of_place(arguments.place_of(position)[0])
                self.found.append(Fact(arguments.path_of(position), Kind.LEAF, value.is_leaf, of_call, str(position)))
        if self.scope.data:
            self.data()
        if self.scope.beginnings != ():  # which it is for most programs
            self.beginnings()
        views = zip(arguments.views, arguments.view_of, arguments.paths_of_views, strict=True)
        for position, (view, base, path) in enumerate(views, len(arguments.values)):
            rules = _torch.autograd.view_rules(view) if _torch.autograd.is_view(view) else None
            self.found.append(Fact(path, Kind.VIEW, (rules, arguments.path_of(base)), within=str(position)))
        if self.scope.writes:
            self.memory()
        for position, number in arguments.identified.items():
            self.found.append(Fact(arguments.path_of(position), Kind.ADDRESS, number, within=str(position)))

    def beginnings(self) -> None:
        """Notes where tensors begin of which that counts, wherever they are; by default where wrappers do."""
        arguments, counts = self.arguments, self.scope.beginnings
        values, metas = (*arguments.values, *arguments.views), (*arguments.plan.metas, *self.views[0].metas)
        positions = range(len(values)) if counts is None else sorted({position for position, _ in counts})
        for position in positions[: len(values)]:
            path, of_call = arguments.path_of(position), self.origins.of_place(arguments.place_of(position)[0])
            for inside, part, meta in walk(values[position], metas[position]):
                is_wrapper = isinstance(meta, SubclassCreationMeta)
                if is_wrapper if counts is None else (position, inside) in counts:
                    begin, within = part.storage_offset(), f"{position}{inside}"
                    self.found.append(Fact(path + inside, Kind.BEGINNING, begin, of_call, within))

    def data(self) -> None:
        """Notes the values that were read while tracing."""
        for number in self.scope.data:
            leaf = self.leaves[number] if number < len(self.leaves) else None
            if isinstance(leaf, torch.Tensor) and not leaf.is_meta:
                self.found.append(Fact(self.path_of(number), Kind.DATA, constant(leaf.tolist()), within=str(number)))

    def memory(self) -> None:
        """Notes which leaves share memory, how they lie in it, and which tensors have one history."""
        leaves = self.leaves
        shared = storage_groups(leaves)
        together = {slot for group in shared for slot in group}
        bases = [base for base in self.scope.bases if together.isdisjoint(base) and max(base) < len(leaves)]
        groups = shared + bases
        together |= {slot for group in groups for slot in group}
        # One of each group stands for it: storages that were two are two.
        alone = [slot for slot, leaf in enumerate(leaves) if has_storage(leaf) and slot not in together]
        alone += [group[0] for group in groups if has_storage(leaves[group[0]])]
        self.found.append(Fact("leaves that share storage", Kind.STORAGE, Storages(tuple(shared), tuple(alone))))
        for group in groups:
            for slot in group:
                position, inside = self.places_of_leaves[slot]
                if (position, inside) not in (self.scope.beginnings or ()):
                    begin, within = leaves[slot].storage_offset(), f"{position}{inside}"
                    self.found.append(Fact(self.path_of(slot), Kind.BEGINNING, begin, within=within))
            first = group[0]
            size = leaves[first].untyped_storage().nbytes()
            self.found.append(Fact(self.path_of(first), Kind.BYTES, size, within=str(first)))
        self.histories(shared)

    def histories(self, groups: Sequence[tuple[int, ...]]) -> None:
        """Notes which tensors that share memory have one history, where autograd sees that one is written."""
        arguments, slots = self.arguments, self.arguments.plan.index_map.slots
        written = self.scope.seen_by_autograd
        counting = None if written is None else frozenset(written)
        for group in groups:
            positions = sorted({slots[s].outer for s in group if s < len(slots)})
            writing = [i for i in positions if counting is None or i in counting]
            if not writing or len(positions) < 2:
                continue
            bases = {i: autograd_base(arguments.values[i]) for i in positions}
            first: dict[int, int] = {}
            for i in writing:
                first.setdefault(id(bases[i]), i)
            for i in positions:
                of = first.get(id(bases[i]))
                value = History(i, of, "" if of is None else arguments.path_of(of))
                self.found.append(Fact(arguments.path_of(i), Kind.HISTORY, value, within=str(group[0])))


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
        start, steps = holder.access_path
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
