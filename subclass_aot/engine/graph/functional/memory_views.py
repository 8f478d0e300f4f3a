"""Views that are made of what owns the memory, where a graph is played again. See Note [Places in memory].

Torch's `functionalize` writes through a view by the inverse of the operator that made it. For `unfold` with gaps that
is wrong, for `as_strided` of another view it gives up, and no operator that says nothing of a view has one. What such a
view is of its owner is known: sizes, strides and an offset. So it is made of slices and of dims that are split, where
it is made of these, and otherwise of a flat copy of the owner, by `as_strided`, which has an inverse.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.engine.graph.listeners.places import (
    AS_STRIDED_,
    AS_STRIDED_COPY,
    AS_STRIDED_SCATTER,
    COUNTED,
    SAFE_VIEWS,
)
from subclass_aot.engine.graph.recorder import Recorder
from subclass_aot.errors import MutationError
from subclass_aot.kit.views import opens, regenerated_view, windows
from subclass_aot.meta import Spec
from subclass_aot.meta.symbols import SizesMustBeKnown

_OTHER_TYPES = """A tensor is seen as several types, and views of these are written which are no slices of it.
  Operator:   {operator}
  The view:   {view}
  The tensor: {owner}
  Line:       {line}
  Instead: write a copy, as in part = x.view(dtype).clone(), and write that back with x.copy_(part.view(x.dtype))."""

How = Literal["slices", "windows", "storage"]
"""How a view is made of its owner: to be written and read, to be read, or of a flat tensor that has its elements."""


@dataclass(frozen=True, slots=True, eq=False)
class FlatStorage:
    """A flat tensor that has the elements of others.

    Attributes:
        flat: The tensor.
        begins: What offset its first element has in the storage that the others were recorded with.
    """

    flat: torch.Tensor
    begins: Any = 0

    @staticmethod
    def of(value: torch.Tensor, spec: Spec, dtype: torch.dtype) -> FlatStorage:
        """Makes a new one, with the elements of a tensor.

        Args:
            value: The tensor.
            spec: Its spec.
            dtype: What type the storage is of.
        """
        if spec.is_packed:
            begins = spec.offset * spec.dtype.itemsize // dtype.itemsize
            flat = value if value.dim() == 1 else value.reshape(-1)
            return FlatStorage((flat if dtype is spec.dtype else flat.view(dtype)).clone(), begins)
        flat = value.new_empty((spec.extent - spec.offset,))
        flat.as_strided(spec.size, spec.stride, 0).copy_(value)
        return FlatStorage(flat, spec.offset)

    def view(self, spec: Spec) -> torch.Tensor:
        """Makes one of the others; one of another type than the storage is the tensor that it was made of."""
        if self.flat.dtype is spec.dtype:
            return self.flat.as_strided(spec.size, spec.stride, spec.offset - self.begins)
        return self.flat.view(spec.dtype).view(spec.size)


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """A view that is made here.

    Attributes:
        owner: The node of the tensor that it is made of.
        view: The view.
        how: How it is made of that.
    """

    owner: fx.Node
    view: Spec
    how: How


class MemoryViews:
    """Makes views of what owns memory.

    Args:
        recorded: The recorder of the graph that is played.
        stored: The inputs, and other nodes, that will have a storage.

    Raises:
        MutationError: One cannot be made.

    Attributes:
        storage_of: By the node of an owner, the tensor that it lies in.
    """

    def __init__(self, recorded: Recorder, stored: Iterable[fx.Node]) -> None:
        self.storage_of: dict[fx.Node, FlatStorage] = {}
        self._stored = set(stored)
        self._flat: dict[fx.Node, torch.dtype] = {}
        self._owners: dict[fx.Node, Any] = {}  # as they were made: their metadata may be mutated later
        self._made: dict[fx.Node, _Made] = {}
        self._safe: set[fx.Node] = set()
        written = recorded.written_nodes()
        for node, (root, view) in recorded.listeners.places.views.items():
            if view is None:
                if root in written:
                    self._safe.add(node)
                continue
            counts = node.target in COUNTED and argument_at(COUNTED[node.target], node.args, node.kwargs) is not None
            if root in written or root in self._stored or counts and root.op == "placeholder":
                self._made[node] = made = self._plan(node, root, view, root in written)
                self._owners[made.owner] = None

    def noted(self, node: fx.Node, value: Any) -> Any:
        """Notes the value of a node, and returns what it is from there on: a view of its storage, if it has one.

        Args:
            node: A node of the graph that is played.
            value: What it gives now.
        """
        if node in self._flat:
            spec = node.meta["spec"]
            self.storage_of[node] = FlatStorage.of(value, spec, self._flat[node])
            value = self.storage_of[node].view(spec)
        if node in self._owners:
            self._owners[node] = value
        return value

    def play(self, node: fx.Node, values: dict[fx.Node, Any], args: Sequence[Any]) -> Any:
        """Returns what a node gives that is made here, else NotImplemented.

        Args:
            node: A node of the graph that is played.
            values: What the nodes before it gave; a tensor that gets other strides in place is another one there.
            args: The arguments of the node.
        """
        if node in self._safe:
            return SAFE_VIEWS[node.target](*args)
        made = self._made.get(node)
        if made is None:
            return NotImplemented
        if node.target is AS_STRIDED_SCATTER:
            return _scattered(args[0], args[1], node.meta["spec"], made.view)
        view = self._view(made)
        if node.target is AS_STRIDED_COPY:
            return view.clone(memory_format=torch.contiguous_format)
        if node.target is AS_STRIDED_:
            tensor: Any = node.args[0]
            values[tensor] = view
        return view

    def _view(self, made: _Made) -> torch.Tensor:
        if made.how == "storage":
            return self.storage_of[made.owner].view(made.view)
        where: Any = made.view.size, made.view.stride, made.view.offset - made.owner.meta["spec"].offset
        owner = self._owners[made.owner]
        if made.how == "windows":
            return windows(owner, *where)
        view = regenerated_view(owner, *where)
        assert view is not None, "it was seen to be made of slices"
        return view

    def _plan(self, node: fx.Node, root: fx.Node, view: Spec, is_written: bool) -> _Made:
        owner: fx.Node = self._owner(node.args[0])
        if node.target is AS_STRIDED_SCATTER:
            return _Made(owner, view, "storage")
        how: How = "storage" if root in self._stored else self._how(owner, view, is_written)
        if how != "storage":
            return _Made(owner, view, how)
        owner = self._owner(node.args[0], of_any_type=True)
        spec: Spec = owner.meta["spec"]
        dtype = spec.dtype if owner in self._stored else self._flat.setdefault(owner, view.dtype)
        if dtype is not view.dtype or dtype is not spec.dtype and not spec.is_packed:
            if spec.solver is not None or view.solver is not None:
                raise SizesMustBeKnown
            line = " ".join(str(node.meta["stack_trace"]).splitlines()[-2:]).strip()
            raise MutationError(_OTHER_TYPES.format(operator=node.target, view=view, owner=spec, line=line))
        return _Made(owner, view, how)

    def _how(self, owner: fx.Node, view: Spec, is_written: bool) -> How:
        spec: Spec = owner.meta["spec"]
        if spec.solver is not None or view.solver is not None:
            return "storage"
        begins = int(view.offset - spec.offset)
        if spec.is_packed and begins >= 0:
            size, stride = [[int(n) for n in numbers] for numbers in (view.size, view.stride)]
            if 0 in size or opens(spec.numel, size, stride, begins):
                return "slices"
        return "windows" if spec.is_non_overlapping_and_dense and begins >= 0 and not is_written else "storage"

    def _owner(self, node: Any, of_any_type: bool = False) -> fx.Node:
        """Finds what a view is made of: the tensor that owns the memory, or one that sees it as another type."""
        while (source := self._source(node)) is not None:
            if source.meta["spec"].dtype is not node.meta["spec"].dtype and not of_any_type:
                break
            node = source
        return node  # type: ignore[no-any-return]

    def _source(self, node: fx.Node) -> Any:
        """Returns what a node is a view of; None for one that is none."""
        if node.target is operator.getitem:
            node = node.args[0]  # type: ignore[assignment]
        if not _torch.operators.is_overload(node.target):
            return None
        if node.target in SAFE_VIEWS:
            return node.args[0]
        viewed = next(iter(effects_of(node.target).returns_view_of), None)
        return None if viewed is None else argument_at(viewed, node.args, node.kwargs)


def _scattered(tensor: Any, source: Any, spec: Spec, view: Spec) -> Any:
    """Makes a copy of a tensor with a part written that may reach out of it; what lies there is gone.

    Raises:
        SizesMustBeKnown: Some are symbols.
    """
    if spec.solver is not None or view.solver is not None:
        raise SizesMustBeKnown
    # It begins where the tensor does: eager copies the whole storage.
    storage = FlatStorage(tensor.new_empty((max(spec.extent, view.extent),)))
    copy = storage.view(spec)
    copy.copy_(tensor)
    storage.view(view).copy_(source)
    return copy
