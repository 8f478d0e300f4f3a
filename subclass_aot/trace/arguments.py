"""What a call brings: tensors from its arguments and from modules, and Python values that are constants."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import optree
import torch

from subclass_aot.errors import MutationError, PlanError
from subclass_aot.flatten import FlattenPlan

NAMESPACE = "subclass_aot"
"""The optree namespace: register container classes of your own with it (or globally) to pass them as arguments."""

_TENSOR_IN_CONSTANT = """{path}: this {kind} holds a tensor (in {inside!r}), but it is passed as one Python value.
  A Python value becomes a constant of the compiled function, and the tensor would be frozen with it.
  Instead: register the class as a container, optree.register_pytree_node({kind}, ..., namespace="subclass_aot"),
  or pass its tensors as arguments of their own."""

_REASSIGNED = """{path} is another tensor after the call than before: the function assigns to it.
  An assignment happens while tracing, not in the graph, so later calls would not repeat it.
  Instead: write into the tensor, as in {path}.copy_(...), or return the new value."""


@dataclass(frozen=True, slots=True)
class ArgumentPlace:
    """A tensor among the flattened arguments."""

    leaf: int
    path: str

    def read(self, leaves: list[Any]) -> torch.Tensor:
        """The tensor that stands here now."""
        tensor: torch.Tensor = leaves[self.leaf]
        return tensor


@dataclass(frozen=True, slots=True, eq=False)
class ModulePlace:
    """A parameter or buffer of a module."""

    module: torch.nn.Module
    table: str
    name: str
    path: str

    def read(self, leaves: list[Any]) -> torch.Tensor | None:
        """The tensor that stands here now."""
        tensor: torch.Tensor | None = getattr(self.module, self.table)[self.name]
        return tensor


Place = ArgumentPlace | ModulePlace


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
        views: Tensors that stand for views of one of `values`. See Note [Views of one tensor].
    """

    treespec: optree.PyTreeSpec
    leaves: list[Any]
    places: tuple[Place, ...]
    values: tuple[torch.Tensor, ...]
    value_at: tuple[int, ...]
    modules: tuple[tuple[str, torch.nn.Module], ...]
    views: tuple[torch.Tensor, ...] = ()

    @staticmethod
    def of(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Takes a call apart. Modules, `fn` itself and arguments, bring their parameters and buffers.

        Raises:
            PlanError: A Python value among the arguments holds a tensor where nothing would find it.
        """
        leaves, treespec = flatten((args, kwargs))
        paths = [_path(accessor) for accessor in treespec.accessors()]
        places: list[Place] = []
        modules: list[tuple[str, torch.nn.Module]] = []
        if isinstance(fn, torch.nn.Module):
            modules.extend(_submodules("self", fn))
        for i, (leaf, path) in enumerate(zip(leaves, paths, strict=True)):
            if isinstance(leaf, torch.Tensor):
                places.append(ArgumentPlace(i, path))
            elif isinstance(leaf, torch.nn.Module):
                modules.extend(_submodules(path, leaf))
            else:
                _refuse_hidden_tensors(leaf, path)
        places.extend(_places_of(modules))
        return Arguments(treespec, leaves, tuple(places), *_once(places, leaves), tuple(modules))

    def with_views(self, paths: Collection[str]) -> Arguments:
        """The same call, where the tensors at `paths` are views, and what they are views of is among the values."""
        turned = [self.path_of(i) in paths for i in range(len(self.values))]
        stand_ins = [history_owner(v) if turn else v for v, turn in zip(self.values, turned, strict=True)]
        values = tuple({id(v): v for v in stand_ins}.values())
        views = tuple(v for v, turn in zip(self.values, turned, strict=True) if turn)
        position = {id(v): i for i, v in enumerate((*values, *views))}
        value_at = tuple(position[id(self.values[i])] for i in self.value_at)
        return dataclasses.replace(self, values=values, views=views, value_at=value_at)

    @property
    def view_of(self) -> tuple[int, ...]:
        """For each of `views`, the position in `values` of what it is a view of."""
        position = {id(v): i for i, v in enumerate(self.values)}
        return tuple(position[id(history_owner(v))] for v in self.views)

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

    @contextmanager
    def replaced(self, values: list[Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Puts other tensors into every place; modules get their own back at the end, whatever happens.

        Yields:
            The arguments, with `values` for tensors, `views` included.

        Raises:
            MutationError: The block assigned another tensor to a parameter or buffer.
        """
        leaves = list(self.leaves)
        undo: list[tuple[dict[str, Any], str, Any]] = []
        try:
            for place, position in zip(self.places, self.value_at, strict=True):
                if isinstance(place, ArgumentPlace):
                    leaves[place.leaf] = values[position]
                else:
                    table = getattr(place.module, place.table)
                    undo.append((table, place.name, table[place.name]))
                    table[place.name] = values[position]
            call: Any = optree.tree_unflatten(self.treespec, leaves)
            yield call
            for place, position in zip(self.places, self.value_at, strict=True):
                if isinstance(place, ModulePlace) and place.read(leaves) is not values[position]:
                    raise MutationError(_REASSIGNED.format(path=place.path))
        finally:
            for table, name, tensor in undo:
                table[name] = tensor


def history_owner(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose history a write into `tensor` changes: what it is a view of, or itself."""
    return tensor if tensor._base is None else tensor._base


def flatten(tree: Any) -> tuple[list[Any], optree.PyTreeSpec]:
    """The leaves and the structure of what a user passes or returns; `None` is a leaf."""
    return optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)


def _places_of(modules: list[tuple[str, torch.nn.Module]]) -> Iterator[ModulePlace]:
    for path, module in modules:
        for table in ("_parameters", "_buffers"):
            for name, tensor in getattr(module, table).items():
                if tensor is not None:
                    yield ModulePlace(module, table, name, f"{path}.{name}")


def _submodules(path: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    for name, submodule in module.named_modules():
        yield (f"{path}.{name}" if name else path), submodule


def _once(places: list[Place], leaves: list[Any]) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
    """Each tensor once, and where each place finds its own: tied weights and repeated arguments are one value."""
    values: list[torch.Tensor] = []
    position: dict[int, int] = {}
    value_at = []
    for place in places:
        tensor = place.read(leaves)
        assert tensor is not None
        if id(tensor) not in position:
            position[id(tensor)] = len(values)
            values.append(tensor)
        value_at.append(position[id(tensor)])
    return tuple(values), tuple(value_at)


def _path(accessor: Any) -> str:
    """`args[0]['x']` for an accessor of `(args, kwargs)`; keyword arguments by their own name."""
    entries = list(accessor)
    rest = entries[1:]
    if entries[0].entry == 0:
        return "args" + "".join(e.codify("") for e in rest)
    return f"kwargs[{rest[0].entry!r}]" + "".join(e.codify("") for e in rest[1:])


def _refuse_hidden_tensors(value: Any, path: str) -> None:
    """Looks one level into an object that is passed as a Python value."""
    attributes: dict[str, Any] = {}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        attributes = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    elif isinstance(value, (set, frozenset)):
        attributes = {"its elements": tuple(value)}
    for name, inside in attributes.items():
        if any(isinstance(x, torch.Tensor) for x in flatten(inside)[0]):
            raise PlanError(_TENSOR_IN_CONSTANT.format(path=path, kind=type(value).__name__, inside=name))
