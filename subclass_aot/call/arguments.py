"""What a call brings: tensors from its arguments and from modules, and Python values that are constants."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import optree
import torch

from subclass_aot import _torch
from subclass_aot.aliasing import autograd_base
from subclass_aot.call.objects import Holder, Node, Objects, Pinned, ValueAt, parts_of, refuse_key
from subclass_aot.call.parallel import refuse_parallel
from subclass_aot.call.tables import Table, extras_of, extras_with_grad, is_object
from subclass_aot.call.untracked_state import generators
from subclass_aot.errors import PlanError
from subclass_aot.flatten import FlattenPlan

NAMESPACE = _torch.PYTREE_NAMESPACE
"""The optree namespace: what torch knows as a pytree is one here; `torch.utils._pytree.register_pytree_node` adds
one."""

_SCRIPTED = """{path}: {kind} is compiled by TorchScript, and keeps its tensors where Python cannot put others.
  Instead: compile the Python module that it was made of."""

_LAZY = """{path}: a parameter of a lazy module ({kind}) has no shape yet.
  Instead: run the module once, as it is, before the first compiled call."""


@dataclass(frozen=True, slots=True)
class ArgumentPlace:
    """A tensor among the flattened arguments."""

    leaf: int
    path: str


@dataclass(frozen=True, slots=True, eq=False)
class ModulePlace:
    """A parameter or buffer of a module."""

    module: torch.nn.Module
    table: str
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """A tensor that an object of the call holds: its number in `Arguments.objects`. See Note [Objects of a call].

    Attributes:
        number: Its number there.
        path: Where the user finds it.
        pinned: Whether the object is the same at each call.
    """

    number: int
    path: str
    pinned: bool


Place = ArgumentPlace | ModulePlace | HeldPlace


@dataclass(frozen=True, slots=True, eq=False)
class Arguments:
    """One call, taken apart.

    Attributes:
        treespec: The structure of `(args, kwargs)`.
        leaves: Its leaves: tensors, modules and Python values.
        places: Every place where a tensor stands.
        values: The tensors, each once.
        value_at: For each place, the position of its tensor in `values`, or in `views` after these.
        modules: Every module that brings tensors, submodules included, with its path.
        objects: Every other object that the call reaches.
        roots: Where these begin: the position of a leaf, or None for what the function itself brings, with the node.
        held: What the function itself brings, by name.
        with_grad: Whether the `.grad` of each tensor belongs to the call, too.
        passed_twice: Lists and dicts among the arguments that are reached a second time: where, by their ids.
        views: Tensors that stand for views of one of `values`. See Note [Views of one tensor].
    """

    treespec: optree.PyTreeSpec
    leaves: list[Any]
    places: tuple[Place, ...]
    values: tuple[torch.Tensor, ...]
    value_at: tuple[int, ...]
    modules: tuple[tuple[str, torch.nn.Module], ...]
    objects: Objects
    roots: tuple[tuple[int | None, Node], ...]
    held: tuple[tuple[str, Any], ...]
    with_grad: bool = False
    passed_twice: Mapping[int, str] = field(default_factory=dict)
    views: tuple[torch.Tensor, ...] = ()

    @staticmethod
    def of(
        fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], with_grad: bool = False,
        changing: Collection[str] = (),
    ) -> Arguments:  # fmt: skip
        """Takes a call apart. Modules, `fn` itself and arguments, bring their parameters and buffers; objects, and what
        `fn` closes over, bring the tensors they hold.

        Args:
            fn: What is called.
            args: Its arguments.
            kwargs: Its keyword arguments.
            with_grad: Whether the `.grad` of each tensor belongs to the call, too.
            changing: Paths of numbers that are to be symbols, since the function itself changes them.

        Raises:
            PlanError: What the call reaches cannot be read.
        """
        leaves, treespec = flatten((args, kwargs))
        paths = [_path(accessor) for accessor in treespec.accessors()]
        places: list[Place] = []
        tensors: list[torch.Tensor] = []
        objects = Objects(extras=extras_with_grad if with_grad else extras_of, changing=changing)
        held = (*parts_of(fn), *_keys_of(treespec))
        roots: list[tuple[int | None, Node]] = [(None, objects.root(part, name, True)) for name, part in held]
        for i, (leaf, path) in enumerate(zip(leaves, paths, strict=True)):
            if isinstance(leaf, torch.Tensor):
                places.append(ArgumentPlace(i, path))
                tensors.append(leaf)
                objects.attributes_of(leaf, path, False, ("place", len(places) - 1))
            else:
                roots.append((i, objects.root(leaf, path, False)))
        modules: list[tuple[str, torch.nn.Module]] = []
        objects.walk()
        while fresh := _new_modules(objects, modules):
            for place, tensor in _places_of(fresh):
                places.append(place)
                tensors.append(tensor)
                objects.attributes_of(tensor, place.path, True, ("place", len(places) - 1))
            objects.walk()
        places += [HeldPlace(i, path, pinned) for i, (_, path, pinned) in enumerate(objects.tensors)]
        tensors += [tensor for tensor, _, _ in objects.tensors]
        values, value_at = _once(tensors)
        return Arguments(
            treespec, leaves, tuple(places), values, value_at, tuple(modules), objects, tuple(roots), held, with_grad,
            _passed_twice((args, kwargs), objects),
        )  # fmt: skip

    def holds_lists(self) -> bool:
        """Whether objects hold lists or dicts, which may be arguments, too."""
        return any(type(holder.value) in (list, dict) for holder in self.objects.holders)

    def with_views(self, paths: Collection[str]) -> Arguments:
        """The same call, where the tensors at `paths` are views, and what they are views of is among the values."""
        turned = [self.path_of(i) in paths for i in range(len(self.values))]
        stand_ins = [autograd_base(v) if turn else v for v, turn in zip(self.values, turned, strict=True)]
        values = tuple({id(v): v for v in stand_ins}.values())
        views = tuple(v for v, turn in zip(self.values, turned, strict=True) if turn)
        position = {id(v): i for i, v in enumerate((*values, *views))}
        value_at = tuple(position[id(self.values[i])] for i in self.value_at)
        return dataclasses.replace(self, values=values, views=views, value_at=value_at)

    @property
    def view_of(self) -> tuple[int, ...]:
        """For each of `views`, the position in `values` of what it is a view of."""
        position = {id(v): i for i, v in enumerate(self.values)}
        return tuple(position[id(autograd_base(v))] for v in self.views)

    @property
    def paths_of_views(self) -> tuple[str, ...]:
        """Where the caller finds each of `views`."""
        return tuple(self.path_of(len(self.values) + i) for i in range(len(self.views)))

    def plan(self) -> FlattenPlan:
        """How the tensors are made of leaves.

        Raises:
            InnerTensorError: An inner tensor requires grad, is missing, or is no tensor.
        """
        paths = [self.path_of(i) for i in range(len(self.values))]
        return FlattenPlan.of(self.values, where="inputs", names=paths)

    def path_of(self, value: int) -> str:
        """Where the caller finds `values[value]`, as `args[0]` or `self.head.weight`; also for positions of `views`."""
        if value not in self.value_at:  # only views of it are passed
            return self.path_of(len(self.values) + self.view_of.index(value)) + "._base"
        return self.places[self.value_at.index(value)].path

    @property
    def changing(self) -> tuple[str, ...]:
        """The paths of numbers that are symbols."""
        return tuple(self.objects.tensors[i][1] for i in sorted(self.objects.counted))

    @property
    def held_at(self) -> tuple[int, ...]:
        """For each tensor of `objects`, its position in `values`, or in `views` after these."""
        count = len(self.objects.tensors)
        return self.value_at[len(self.value_at) - count :]

    @contextmanager
    def replaced(self, values: list[Any], stand_ins: bool = False) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Puts other tensors into every place; modules and objects get their own back at the end, whatever happens.

        Args:
            values: The tensors.
            stand_ins: Whether iterators are replaced, too, by what takes no step.

        Yields:
            The arguments, with `values` for tensors, `views` included. Lists and dicts among them are new ones.
        """
        leaves = list(self.leaves)
        with self.objects.restored([module for _, module in self.modules]):
            for place, position in zip(self.places, self.value_at, strict=True):
                if isinstance(place, ArgumentPlace):
                    leaves[place.leaf] = values[position]
                elif isinstance(place, ModulePlace):
                    getattr(place.module, place.table)[place.name] = values[position]
            for i, node in self.roots if stand_ins else ():
                if i is not None and isinstance(node, ValueAt) and node.stand_in is not None:
                    leaves[i] = node.stand_in
            own = [values[i] for i in self.held_at]
            self.objects.put(own, lambda holder: values[self.position_of(holder)], stand_ins)
            call: Any = optree.tree_unflatten(self.treespec, leaves)
            yield call

    @property
    def extras(self) -> dict[int, Holder]:
        """What a program put on tensors, by the number of a place where such a tensor stands."""
        first = len(self.places) - len(self.objects.tensors)
        found = {}
        for holder in self.objects.holders:
            if isinstance(holder.value, torch.Tensor):
                kind, number = holder.steps
                found[number + first if kind == "held" else number] = holder
        return found

    def position_of(self, holder: Holder) -> int:
        """The position in `values`, or in `views` after these, of a tensor on which a program put something."""
        kind, number = holder.steps
        found: int = (self.held_at if kind == "held" else self.value_at)[number]
        return found

    def seen(self, call: tuple[tuple[Any, ...], dict[str, Any]], values: Sequence[Any]) -> Objects:
        """Walks what the function sees: the arguments as `replaced` gives them, and what it holds itself.

        Args:
            call: What `replaced` yields.
            values: What was given to it.
        """
        put = {self.position_of(h): h.tables for h in self.objects.holders if isinstance(h.value, torch.Tensor)}
        tables: dict[int, list[Table]] = {}
        paths = {at: place.path for place, at in reversed(list(zip(self.places, self.value_at, strict=True)))}
        seen = Objects(whole_modules=True, extras=lambda tensor: tables.get(id(tensor), []))
        for i, value in enumerate(values):
            there = {name for table, entries in put.get(i, ()) for name, _ in entries}
            public = _torch.is_traceable_wrapper_subclass(value)  # torch notes things on jagged tensors
            tables[id(value)] = [Table("attributes", but=frozenset(vars(value)) - there, public=public)]
            tables[id(value)] += [Table("grad")] * any(table.kind == "grad" for table, _ in put.get(i, ()))
            seen.attributes_of(value, paths.get(i) or self.path_of(i), True, ("values", i))
        for i, (leaf, accessor) in enumerate(zip(self.leaves, self.treespec.accessors(), strict=True)):
            if not isinstance(leaf, torch.Tensor):
                seen.root(leaf, _path(accessor), False, ("leaves", i))
        for root, name in zip(call, ("args", "kwargs"), strict=True):
            seen.root(root, name, False)
        for name, part in (*self.held, *self.modules):
            seen.root(part, name, True, (Pinned(part),))
        for name, generator in generators():
            seen.watch(name, generator)
        return seen


def flatten(tree: Any) -> tuple[list[Any], optree.PyTreeSpec]:
    """The leaves and the structure of what a user passes or returns; `None` is a leaf."""
    return optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)


def passed_twice(fn: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[int, str]:
    """Lists and dicts among the arguments of a call that are reached a second time: where, by their ids.

    Args:
        fn: What is called, if it or objects may hold them, too.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    if all(isinstance(x, torch.Tensor) for x in (*args, *kwargs.values())):
        return {}
    return _passed_twice((args, kwargs), Objects()) if fn is None else Arguments.of(fn, args, kwargs).passed_twice


def _passed_twice(call: tuple[tuple[Any, ...], dict[str, Any]], objects: Objects) -> dict[int, str]:
    """Lists and dicts that stand a second time among what optree takes apart, or that an object holds, too."""
    whole = set(map(id, flatten(call)[0]))  # lists and dicts of a user's class are not copied
    seen: set[int] = set()
    found: dict[int, str] = {}
    todo = [(x, name) for x, name in zip(call, ("args", "kwargs"), strict=True) if x]
    while todo:
        container, path = todo.pop()
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, x in items:
            if isinstance(x, (list, dict, tuple)) and id(x) not in whole:
                where = f"{path}[{key!r}]"
                if not isinstance(x, tuple) and (id(x) in seen or objects.position_of(x) is not None):
                    found[id(x)] = where
                if id(x) not in seen:
                    todo.append((x, where))
                seen.add(id(x))
    return found


def _keys_of(treespec: optree.PyTreeSpec) -> Iterator[tuple[str, Any]]:
    """Keys of dicts among the arguments that are objects. A dict of another key has another structure."""
    for accessor in treespec.accessors():
        for i, entry in enumerate(accessor):
            if isinstance(entry, optree.MappingEntry):
                path = _path(accessor[:i]) if i > 1 else "kwargs"
                refuse_key(entry.entry, path)
                if is_object(entry.entry):
                    yield f"a key of {path}", entry.entry


def _new_modules(objects: Objects, known: list[tuple[str, torch.nn.Module]]) -> list[tuple[str, torch.nn.Module]]:
    """Modules that were found since, and their submodules. They are walked, and are among `known` afterwards.

    Raises:
        PlanError: Tensors of one are where Python cannot put others, or have no shape yet.
    """
    have = {id(module) for _, module in known}
    fresh = []
    for path, module in list(objects.modules):
        for name, submodule in module.named_modules():
            if id(submodule) not in have:
                have.add(id(submodule))
                fresh.append((f"{path}.{name}" if name else path, submodule))
    for path, module in fresh:
        kind = type(module).__name__
        if _torch.has_flat_parameters(module):  # these are views of one tensor, and no others can stand for them
            refuse_parallel(module, _torch.is_parallel_wrapper(module))
        if isinstance(module, torch.jit.ScriptModule):
            raise PlanError(_SCRIPTED.format(path=path, kind=kind))
        if any(torch.nn.parameter.is_lazy(p) for p in (*module._parameters.values(), *module._buffers.values())):
            raise PlanError(_LAZY.format(path=path, kind=kind))
        objects.root(module, path, True)
    known += fresh
    return fresh


def _places_of(modules: list[tuple[str, torch.nn.Module]]) -> Iterator[tuple[ModulePlace, torch.Tensor]]:
    for path, module in modules:
        for table in ("_parameters", "_buffers"):
            for name, tensor in getattr(module, table).items():
                if tensor is not None:
                    yield ModulePlace(module, table, name, f"{path}.{name}"), tensor


def _once(tensors: list[torch.Tensor]) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
    """Each tensor once, and where each place finds its own: tied weights and repeated arguments are one value."""
    position: dict[int, int] = {}
    for tensor in tensors:
        position.setdefault(id(tensor), len(position))
    return tuple({id(t): t for t in tensors}.values()), tuple(position[id(t)] for t in tensors)


def _path(accessor: Any) -> str:
    """`args[0]['x']` for an accessor of `(args, kwargs)`; keyword arguments by their own name."""
    entries = list(accessor)
    rest = entries[1:]
    if entries[0].entry == 0:
        return "args" + "".join(e.codify("") for e in rest)
    return f"kwargs[{rest[0].entry!r}]" + "".join(e.codify("") for e in rest[1:])
