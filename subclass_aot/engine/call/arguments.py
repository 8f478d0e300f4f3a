"""Flattens a call: tensors from its arguments and from modules, and Python values that are constants."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.engine.aliasing import autograd_base
from subclass_aot.engine.call.data_access import refuse_unknown_parts
from subclass_aot.engine.call.modules import new_modules, places_of
from subclass_aot.engine.call.places import ArgumentPlace, HeldPlace, ModulePlace, Place
from subclass_aot.engine.call.pytree import (
    classes_in,
    flatten_but_for_whole,
    is_whole,
    keys_of,
    path_of,
    reached_twice,
)
from subclass_aot.engine.call.undone import undone_if_it_fails
from subclass_aot.engine.objects import AccessPath, Holder, Objects, parts_of
from subclass_aot.engine.tables import Gradients, Table, extras_of, tables_of_this_thread
from subclass_aot.errors import TraceError
from subclass_aot.kit.flatten import FlattenPlan

_LAYOUT = """{path} is a tensor of the layout {layout}, and graphs take tensors with strides.
  Instead: pass its indices and values as dense tensors, or a wrapper tensor that holds them."""

_GRADIENT_LAYOUT = """{path} is a tensor of the layout {layout}, and the function reads or changes it.
  It is there from an earlier backward, and graphs take tensors with strides.
  Instead: have it be None when the function is called: optimizer.zero_grad() goes before the call, not into it."""


_FLAT = 3
"""How many containers there are around arguments that are no containers: `args`, `kwargs`, and the pair of both."""


@dataclass(frozen=True, eq=False)
class Arguments:
    """One call, flattened.

    Attributes:
        treespec: The structure of `(args, kwargs)`.
        leaves: Its leaves: tensors, modules and Python values.
        places: Every place where a tensor stands.
        values: The tensors, each once.
        value_at: For each place, the position of its tensor in `values`, or in `views` after these.
        modules: Every module that brings tensors, submodules included, with its path.
        objects: Every other object that the call reaches.
        held: What the function itself brings, by name.
        with_grad: Of which tensors the `.grad` belongs to the call, too.
        passed_twice: Lists and dicts among the arguments that are reached a second time: where, by their ids.
        views: Tensors that stand for views of one of `values`. See Note [Views of one tensor].
        ids: What the ids of the tensors were, where they are gone; else none.
    """

    # More than ten attributes: a record of facts, each of which has readers of its own; what follows is a property.
    treespec: optree.PyTreeSpec
    leaves: Sequence[Any]
    places: tuple[Place, ...]
    values: tuple[torch.Tensor, ...]
    value_at: tuple[int, ...]
    modules: tuple[tuple[str, torch.nn.Module], ...]
    objects: Objects
    held: tuple[tuple[str, Any], ...]
    with_grad: Gradients = Gradients.NONE
    passed_twice: Mapping[int, str] = field(default_factory=dict)
    views: tuple[torch.Tensor, ...] = ()
    ids: tuple[int, ...] = ()

    @staticmethod
    def of(
        fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], with_grad: Gradients = Gradients.NONE,
        changing: Collection[str] = (),
    ) -> Arguments:  # fmt: skip
        """Flattens a call. Modules, `fn` itself and arguments, bring their parameters and buffers; objects, and what
        `fn` closes over, bring the tensors they hold.

        Args:
            fn: What is called.
            args: Its arguments.
            kwargs: Its keyword arguments.
            with_grad: Of which tensors the `.grad` belongs to the call, too.
            changing: Paths of numbers that are to be symbols, since the function itself changes them.

        Raises:
            PlanError: What the call reaches cannot be read.
            TraceError: A tensor is sparse, or has another layout without strides.
        """
        leaves, treespec = flatten_but_for_whole((args, kwargs))
        objects = Objects(extras=partial(extras_of, with_grad=with_grad), changing=changing)
        is_nested = bool(kwargs) or treespec.num_nodes - treespec.num_leaves > _FLAT
        keys = keys_of(treespec) if is_nested else ()
        found = Arguments._walk(leaves, treespec, (*parts_of(fn), *keys), objects)
        twice = reached_twice((args, kwargs), objects) if is_nested else {}
        return dataclasses.replace(found, with_grad=with_grad, passed_twice=twice)

    @staticmethod
    def _walk(
        leaves: Sequence[Any], treespec: optree.PyTreeSpec, held: tuple[tuple[str, Any], ...], objects: Objects
    ) -> Arguments:
        """Walks all that a call reaches."""
        paths = [path_of(accessor) for accessor in treespec.accessors()]
        places: list[Place] = []
        tensors: list[torch.Tensor] = []
        for name, part in held:
            objects.root(part, name, True)
        if treespec.num_nodes - treespec.num_leaves > _FLAT:
            for cls in classes_in(treespec):
                objects.reach_classes(cls)
        # The order of places says which path a tensor has that stands in several: arguments first, then modules.
        for i, (leaf, path) in enumerate(zip(leaves, paths, strict=True)):
            if isinstance(leaf, torch.Tensor):
                places.append(ArgumentPlace(i, path))
                tensors.append(leaf)
                objects.attributes_of(leaf, path, False, AccessPath("place", (len(places) - 1,)))
            else:
                objects.leaf(i, leaf, path)
        modules: list[tuple[str, torch.nn.Module]] = []
        objects.walk()
        while fresh := new_modules(objects, modules):  # what a module holds may lead to further ones
            for place, tensor in places_of(fresh):
                places.append(place)
                tensors.append(tensor)
                objects.attributes_of(tensor, place.path, True, AccessPath("place", (len(places) - 1,)))
            objects.walk()
        places += [HeldPlace(i, found.path, found.pinned) for i, found in enumerate(objects.tensors)]
        tensors += [found.tensor for found in objects.tensors]
        for at, tensor in zip(places, tensors, strict=True):
            _refuse_layout(at.path, tensor)
            refuse_unknown_parts(at.path, tensor)
        values, value_at = _once(tensors)
        return Arguments(treespec, leaves, tuple(places), values, value_at, tuple(modules), objects, held)

    def counting(self, names: Mapping[str, Collection[str]]) -> Arguments:
        """Removes attributes of tensors that do not count, and what only these lead to.

        Args:
            names: Those that count, by the path of the tensor; of any other, all do.
        """
        counts: dict[int, Collection[str]] = {}
        for holder in self.objects.holders if names else ():
            if isinstance(holder.value, torch.Tensor):
                known = names.get(self.path_of(self.position_of(holder)))
                there = [key for table, entries in holder.tables if table.kind == "attributes" for key, _ in entries]
                if known is not None and not set(known).issuperset(there):
                    counts[id(holder.value)] = known
        if not counts:
            return self
        objects = Objects(extras=partial(_extras_among, counts, self.with_grad), changing=self.changing)
        found = Arguments._walk(self.leaves, self.treespec, self.held, objects)
        # The order is that of `self`. What stands for a number, or is the state of a generator, is another tensor now.
        order: dict[object, int] = {self.path_of(i): i for i in range(len(self.values))}
        order |= {id(value): i for i, value in enumerate(self.values)}
        ranks = [order.get(id(value), order.get(found.path_of(i), i)) for i, value in enumerate(found.values)]
        found = found._in_order(ranks)
        return dataclasses.replace(found, with_grad=self.with_grad, passed_twice=self.passed_twice)

    @property
    def placed(self) -> Iterable[tuple[Place, int]]:
        """Every place, with the position of its tensor in `values`, or in `views` after these."""
        return zip(self.places, self.value_at, strict=True)

    @cached_property
    def named(self) -> dict[str, Any]:
        """The modules, and what the function holds: objects that are the same at each call, by their paths."""
        return {path: part for path, part in reversed([*self.held, *self.modules])}

    def holds_lists(self) -> bool:
        """Returns whether objects hold lists or dicts, which may be arguments, too."""
        return any(type(holder.value) in (list, dict) for holder in self.objects.holders)

    @property
    def paths_of_leaves(self) -> list[str]:
        """Where the user finds each of `leaves`."""
        return [path_of(accessor) for accessor in self.treespec.accessors()]

    @property
    def is_flat(self) -> bool:
        """Whether the arguments are tensors one by one, with no structure around them."""
        nodes = self.treespec.num_nodes - self.treespec.num_leaves
        return nodes == _FLAT and all([isinstance(x, torch.Tensor) for x in self.leaves])

    @property
    def keywords(self) -> list[str]:
        """The names of arguments that are flat and passed by keyword, in the order of their leaves."""
        return [path[1] for path in self.treespec.paths() if path[0] == 1]

    @property
    def flatten(self) -> Callable[[Any], tuple[list[Any], optree.PyTreeSpec]] | None:
        """The function that flattens arguments of calls like this one, where some leaves have parts; else None."""
        return flatten_but_for_whole if any(map(is_whole, self.leaves)) else None

    def parameters_first(self) -> Arguments:
        """Puts parameters first, then buffers, then what else there is: the order of AOTAutograd's joint graphs."""
        rank = [2] * len(self.values)
        for i in range(len(self.values)):
            place = self._first_places[i]
            if isinstance(place, ModulePlace):
                rank[i] = 0 if place.table == _torch.modules.PARAMETERS else 1
        return self._in_order(rank)

    def _in_order(self, ranks: Sequence[int]) -> Arguments:
        """Puts values into another order, by the rank of each."""
        order = sorted(range(len(self.values)), key=ranks.__getitem__)
        now_at = {before: now for now, before in enumerate(order)}
        values = tuple([self.values[i] for i in order])
        return dataclasses.replace(self, values=values, value_at=tuple([now_at[i] for i in self.value_at]))

    def with_views(self, paths: Collection[str]) -> Arguments:
        """Takes the tensors at `paths` for views: what they are views of is among the values in their place."""
        if not paths:
            return self
        to_views = [self.path_of(i) in paths for i in range(len(self.values))]
        stand_ins = [autograd_base(v) if is_view else v for v, is_view in zip(self.values, to_views, strict=True)]
        values = tuple({id(v): v for v in stand_ins}.values())
        views = tuple([v for v, is_view in zip(self.values, to_views, strict=True) if is_view])
        position = {id(v): i for i, v in enumerate((*values, *views))}
        value_at = tuple([position[id(self.values[i])] for i in self.value_at])
        return dataclasses.replace(self, values=values, views=views, value_at=value_at)

    @cached_property
    def view_of(self) -> tuple[int, ...]:
        """For each of `views`, the position in `values` of what it is a view of."""
        position = {id(v): i for i, v in enumerate(self.values)}
        return tuple([position[id(autograd_base(v))] for v in self.views])

    @property
    def paths_of_views(self) -> tuple[str, ...]:
        """Where the user finds each of `views`."""
        return tuple(self.path_of(len(self.values) + i) for i in range(len(self.views)))

    @cached_property
    def plan(self) -> FlattenPlan:
        """How the tensors are made of leaves.

        Raises:
            InnerTensorError: An inner tensor requires grad, is missing, or is no tensor.
        """
        paths = [self.path_of(i) for i in range(len(self.values))]
        return FlattenPlan.of(self.values, where="inputs", names=paths, are_given=True)

    @cached_property
    def _first_places(self) -> dict[int, Place]:
        """The first place of each value and view, by position."""
        return {at: place for place, at in reversed(list(self.placed))}

    @cached_property
    def _views_of(self) -> dict[int, int]:
        """The first view of each value of which there is one, by the numbers of both."""
        return {value: i for i, value in reversed(list(enumerate(self.view_of)))}

    def place_of(self, value: int) -> tuple[Place, bool]:
        """Returns where the user finds `values[value]`, or one of `views`, and whether only a view of it is there."""
        place = self._first_places.get(value)
        if place is None:
            return self._first_places[len(self.values) + self._views_of[value]], True
        return place, False

    def path_of(self, value: int) -> str:
        """Returns what that place is called, as `args[0]` or `self.head.weight`."""
        place, of_view = self.place_of(value)
        return f"{place.path}.{_torch.autograd.BASE}" if of_view else place.path

    def first_lazy(self) -> str | None:
        """Returns what the first tensor is called that is conjugated or negated lazily; None if there is none."""
        found = (i for i, x in enumerate(self.values) if _torch.wrappers.is_lazy(x))
        lazy = next(found, None)
        return None if lazy is None else self.path_of(lazy)

    @property
    def changing(self) -> tuple[str, ...]:
        """The paths of numbers that are symbols."""
        return tuple([path for path, _ in self.changing_numbers])

    @property
    def at_numbers(self) -> list[int]:
        """The positions in `values` of what stands for numbers that are symbols."""
        return [i for i, held in zip(self.held_at, self.objects.tensors, strict=True) if held.is_number]

    @property
    def changing_numbers(self) -> list[tuple[str, torch.Tensor]]:
        """These paths, and the tensors that stand for the numbers."""
        return [(held.path, held.tensor) for held in self.objects.tensors if held.is_number]

    @cached_property
    def held_at(self) -> tuple[int, ...]:
        """For each tensor of `objects`, its position in `values`, or in `views` after these."""
        count = len(self.objects.tensors)
        return self.value_at[len(self.value_at) - count :]

    @property
    def held_by_modules(self) -> frozenset[int]:
        """The numbers of those tensors of `objects` that modules hold as parameters or buffers, too."""
        in_modules = {position for place, position in self.placed if isinstance(place, ModulePlace)}
        return frozenset(number for number, position in enumerate(self.held_at) if position in in_modules)

    @contextmanager
    def replaced(
        self, values: Sequence[Any], stand_ins: bool = False, in_this_thread: bool = False
    ) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Puts other tensors into every place; modules and objects get their own back at the end, whatever happens.

        Args:
            values: The tensors.
            stand_ins: Whether iterators are replaced, too, by what takes no step.
            in_this_thread: Whether other threads find the modules as they are. What is compiled within the block then
                knows tables of modules that end with it, so this is for traces alone, within which nothing is.

        Yields:
            The arguments, with `values` for tensors, `views` included. Lists and dicts among them are new ones.
        """
        leaves = list(self.leaves)
        modules = [module for _, module in self.modules]
        in_trace = in_this_thread and bool(modules)
        undone = undone_if_it_fails(modules) if in_trace else nullcontext()
        tables = tables_of_this_thread(modules) if in_trace else nullcontext()
        with undone, tables, self.objects.restored(() if in_this_thread else modules):
            for place, position in self.placed:
                match place:
                    case ArgumentPlace():
                        leaves[place.leaf] = values[position]
                    case ModulePlace():
                        getattr(place.module, place.table)[place.name] = values[position]
                    case HeldPlace():
                        pass  # `Objects.put` does it
            own = [values[i] for i in self.held_at]
            for leaf, other in self.objects.replaced_leaves(own, stand_ins):
                leaves[leaf] = other
            before = self.ids or map(id, (*self.values, *self.views))
            ids = {number: id(new) for number, new in zip(before, values, strict=True)}
            self.objects.put(own, lambda holder: values[self.position_of(holder)], stand_ins, ids)
            self.objects.forget_rebuilt()
            leaves = [self.objects.with_other_ids(leaf, ids) for leaf in leaves]
            call: Any = optree.tree_unflatten(self.treespec, leaves)
            yield call

    @property
    def identified(self) -> dict[int, int]:
        """The ids by which objects of the call know some of its tensors, by the positions of these."""
        numbers = self.addresses
        return {i: id(value) for i, value in enumerate((*self.values, *self.views)) if id(value) in numbers}

    @cached_property
    def addresses(self) -> frozenset[int]:
        """Numbers that objects of the call hold, and that may be ids of tensors."""
        entries = [entry for holder in self.objects.holders for _, entries in holder.tables for entry in entries]
        entries += [(None, node) for node in self.objects.leaves.values()]
        return frozenset(n for n in self.objects.numbers(entries) if n % 8 == 0 and 1 << 32 <= n < 1 << 48)

    @property
    def extras(self) -> dict[int, Holder]:
        """What a program put on tensors, by the number of a place where such a tensor stands."""
        first = len(self.places) - len(self.objects.tensors)
        found = {}
        for holder in self.objects.holders:
            if isinstance(holder.value, torch.Tensor):
                start, number = _place(holder)
                found[number + first if start == "held" else number] = holder
        return found

    @property
    def with_attributes(self) -> frozenset[int]:
        """The positions in `values`, or in `views` after these, of tensors on which a program put attributes."""
        holders = [holder for holder in self.objects.holders if isinstance(holder.value, torch.Tensor)]
        return frozenset(self.position_of(h) for h in holders if any(t.kind == "attributes" for t, _ in h.tables))

    def position_of(self, holder: Holder) -> int:
        """Returns the position in `values`, or in `views` after these, of a tensor on which a program put something."""
        start, number = _place(holder)
        return (self.held_at if start == "held" else self.value_at)[number]

    def seen(self, call: tuple[tuple[Any, ...], dict[str, Any]], values: Sequence[Any]) -> Objects:
        """Walks what the function sees: the arguments as `replaced` gives them, and what it holds itself.

        Args:
            call: What `replaced` yields.
            values: What was given to it.
        """
        put = {self.position_of(h): h.tables for h in self.objects.holders if isinstance(h.value, torch.Tensor)}
        tables: dict[int, list[Table]] = {}
        seen = Objects(whole_modules=True, extras=lambda tensor: tables.get(id(tensor), []))
        seen.identities = {id(value): value for value in values}
        seen.named = self.named
        # A fake has attributes of its own from the start. What else is on it, the program put there.
        for i, value in enumerate(values):
            there = {name for table, entries in put.get(i, ()) for name, _ in entries}
            public = _torch.wrappers.is_traceable_wrapper_subclass(value)  # torch notes things on jagged tensors
            tables[id(value)] = [Table("attributes", but=frozenset(vars(value)) - there, public=public)]
            tables[id(value)] += [Table("grad")] * any(table.kind == "grad" for table, _ in put.get(i, ()))
            seen.attributes_of(value, self.path_of(i), True, AccessPath("values", (i,)))
        for i, (leaf, accessor) in enumerate(zip(self.leaves, self.treespec.accessors(), strict=True)):
            if not isinstance(leaf, torch.Tensor):
                seen.leaf(i, leaf, path_of(accessor))
        for root, name in zip(call, ("args", "kwargs"), strict=True):
            seen.root(root, name, False)
        for name, part in (*self.held, *self.modules):
            seen.root(part, name, True, seen.access_path_to(part, name))
        return seen


def _extras_among(counts: Mapping[int, Collection[str]], with_grad: Gradients, tensor: torch.Tensor) -> list[Table]:
    """Returns the tables of what a program put on a tensor, but for attributes that do not count."""
    tables = extras_of(tensor, with_grad)
    names = counts.get(id(tensor))
    if names is None:
        return tables
    there = [name for name in names if name in vars(tensor)]
    found = [dataclasses.replace(t, only=tuple(filter(t.has, there))) if t.kind == "attributes" else t for t in tables]
    return [table for table in found if table.only != ()]


def passed_twice(fn: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[int, str]:
    """Finds lists and dicts among the arguments of a call that are reached a second time: where, by their ids.

    Args:
        fn: What is called, if it or objects may hold them, too.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    if all(isinstance(x, torch.Tensor) for x in (*args, *kwargs.values())):
        return {}
    return reached_twice((args, kwargs), Objects()) if fn is None else Arguments.of(fn, args, kwargs).passed_twice


def _once(tensors: list[torch.Tensor]) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
    """Returns each tensor once, and where each place finds its own: tied weights are one value."""
    position: dict[int, int] = {}
    for tensor in tensors:
        position.setdefault(id(tensor), len(position))
    return tuple({id(t): t for t in tensors}.values()), tuple([position[id(t)] for t in tensors])


def _refuse_layout(path: str, tensor: torch.Tensor) -> None:
    if tensor.layout is not torch.strided and not _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        message = _GRADIENT_LAYOUT if path.endswith(".grad") else _LAYOUT
        raise TraceError(message.format(path=path, layout=tensor.layout))


def _place(holder: Holder) -> tuple[str, int]:
    """Returns where a tensor stands on which a program put something: "place" or "held", and a number."""
    start, (number,) = holder.access_path
    assert isinstance(start, str) and isinstance(number, int)
    return start, number
