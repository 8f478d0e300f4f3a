"""Writes into tensors in which several elements are one place in memory, as in an expanded one.

Note [Internal overlap]
~~~~~~~~~~~~~~~~~~~~~~~
A graph without writes has a value for each element, and cannot tell which of several that are one place is meant. So a
write must reach each place once. What gives all elements of a place the same value (`fill_`, `zero_`, a mask of any of
them) is recorded as a write into one of them; any other write into a tensor that overlaps itself is refused, as eager
refuses it. Inputs that overlap themselves become views of a flat base, see Note [Shared storage]; a write into a part
of one, such as a row, is recorded as a write into that part of the base.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from subclass_aot import _torch
from subclass_aot.graph.listener import GraphListener, written_leaves
from subclass_aot.graph.view_ops import regenerated_view
from subclass_aot.meta import MetaTensor, Storage, new_leaf
from subclass_aot.operators import effects_of
from subclass_aot.symbols import SizesMustBeKnown

if TYPE_CHECKING:  # which has this listener
    from subclass_aot.graph.recorder import Recorder

_aten = torch.ops.aten


def has_internal_overlap(leaf: object) -> TypeGuard[MetaTensor]:
    """True for a leaf in which several elements are one place."""
    return isinstance(leaf, MetaTensor) and leaf.spec.overlaps_itself


def apart(leaf: MetaTensor) -> Any:
    """The same part of the storage as `leaf`, with each place once, as a view of what the storage was made for."""
    storage, spec = Storage.of(leaf), leaf.spec
    if spec.solver is not None or storage.spec.solver is not None:
        raise SizesMustBeKnown
    owner = new_leaf(storage.spec, storage)
    owner.tag = storage.tag
    stride = tuple(map(int, spec.stride))
    size = [1 if step == 0 else int(n) for n, step in zip(spec.size, stride, strict=True)]
    again = None
    if not storage.spec.overlaps_itself:
        again = regenerated_view(owner, size, stride, int(spec.offset - owner.spec.offset))
    return owner.as_strided(size, stride, int(spec.offset)) if again is None else again


class InternalOverlap(GraphListener):
    """Has a part of an input that overlaps itself written through the storage."""

    def wants(self, func: _torch.Operator) -> bool:
        return effects_of(func).mutates and not effects_of(func).reshapes

    def on_operator(
        self, recorder: Recorder, func: _torch.Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: object
    ) -> None:
        for leaf in written_leaves(func, args, kwargs):
            if Storage.of(leaf).spec.overlaps_itself and not has_internal_overlap(leaf):
                with recorder:
                    leaf.tag = apart(leaf).tag


def _fill(x: torch.Tensor, value: object) -> Any:
    if not has_internal_overlap(x):
        return NotImplemented
    _aten.fill_.Scalar(apart(x), value)
    return x


def _zero(x: torch.Tensor) -> Any:
    return _fill(x, 0)


def _masked_fill(x: torch.Tensor, mask: torch.Tensor, value: object) -> Any:
    if not has_internal_overlap(x):
        return NotImplemented
    folds = [dim for dim, step in enumerate(x.spec.stride) if step == 0]
    apart(x).masked_fill_(mask.expand(x.shape).any(folds, keepdim=True), value)
    return x


_WRITES: dict[Any, Callable[..., Any]] = {
    _aten.fill_.Scalar: _fill,
    _aten.zero_.default: _zero,
    _aten.masked_fill_.Scalar: _masked_fill,
    _aten.masked_fill_.Tensor: _masked_fill,
}
"""For operators that eager allows on such tensors, how they are recorded; `NotImplemented` for all other tensors."""


def before(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The same decompositions of operators, which tensors that overlap themselves do not reach."""
    own = {func: functools.partial(_first, write, decompositions.get(func)) for func, write in _WRITES.items()}
    return {**decompositions, **own}


def _first(write: Callable[..., Any], otherwise: Callable[..., Any] | None, *args: object, **kwargs: object) -> Any:
    result = write(*args, **kwargs)
    return otherwise(*args, **kwargs) if result is NotImplemented and otherwise is not None else result
