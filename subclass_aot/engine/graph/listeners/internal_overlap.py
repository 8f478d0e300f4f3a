"""Writes into tensors in which several elements are one place in memory: expanded ones, and windows that overlap.

Note [Internal overlap]
~~~~~~~~~~~~~~~~~~~~~~~
A graph without writes has a value for each element, and cannot say which of several that are one place is meant. So a
write must reach each place once, or give all elements of a place the same value (`fill_`, `zero_`, a mask of any of
them, a copy of one element): of an expanded tensor one of them is written then, and of windows all. Any other write
into a tensor that overlaps itself is refused: eager refuses it, too, or takes the elements in an order that it does not
tell. Inputs that overlap themselves become views of a flat base, see Note [Shared storage]; a write into a part of one,
such as a row, is recorded as a write into that part of the base.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.graph.listeners.listener import GraphListener, written_leaves
from subclass_aot.engine.graph.tape import Tape
from subclass_aot.kit.views import regenerated_view
from subclass_aot.meta import MetaTensor, Storage, new_leaf
from subclass_aot.meta.symbols import SizesMustBeKnown

_aten = torch.ops.aten


def _overlaps_itself(leaf: object) -> TypeGuard[MetaTensor]:
    """Returns whether several elements of a traced leaf are one place."""
    return isinstance(leaf, MetaTensor) and leaf.meta_spec.overlaps_itself


def one_element_per_address(leaf: MetaTensor) -> Any:
    """Returns the same part of the storage as `leaf`, with each place once, as a view of what the storage was made
    for.
    """
    storage, spec = Storage.of(leaf), leaf.meta_spec
    if spec.solver is not None or storage.spec.solver is not None:
        raise SizesMustBeKnown
    owner = new_leaf(storage.spec, storage)
    owner.meta_tag = storage.tag
    stride = tuple(map(int, spec.stride))
    size = [1 if step == 0 else int(n) for n, step in zip(spec.size, stride, strict=True)]
    again = None
    if not _overlaps_itself(owner) and owner.meta_spec.dtype is spec.dtype:
        again = regenerated_view(owner, size, stride, int(spec.offset - owner.meta_spec.offset))
    return leaf.as_strided(size, stride) if again is None else again


class InternalOverlap(GraphListener):
    """Has a part of an input that overlaps itself written through the storage."""

    effects = ("writes",)

    def on_operator(
        self,
        recorder: Tape,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        for leaf in written_leaves(func, args, kwargs):
            if Storage.of(leaf).spec.overlaps_itself and not _overlaps_itself(leaf):
                with recorder:
                    leaf.meta_tag = one_element_per_address(leaf).meta_tag


def _is_expanded(x: object) -> TypeGuard[MetaTensor]:
    return isinstance(x, MetaTensor) and x.meta_spec.is_expanded


def _has_windows(x: object) -> bool:
    """Returns whether a tensor overlaps itself, or may where its sizes are symbols."""
    try:
        return _overlaps_itself(x)
    except SizesMustBeKnown:
        return True


def _fill(x: torch.Tensor, value: object) -> Any:
    if _is_expanded(x):
        one_element_per_address(x).fill_(value)
        return x
    return _AS_IT_IS if _has_windows(x) else NotImplemented


def _zero(x: torch.Tensor) -> Any:
    return x.fill_(0) if _has_windows(x) else NotImplemented


def _copy(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    if not isinstance(x, MetaTensor) or _is_expanded(x) or not _overlaps_itself(x):
        return NotImplemented
    if isinstance(source, MetaTensor) and getattr(source.meta_tag, "target", None) in _ZEROS:
        x.fill_(0)  # as the gradient of what is filled
    elif all(n == 1 or step == 0 for n, step in zip(source.shape, source.stride(), strict=True)):
        x.fill_(source[(0,) * source.dim()].to(x.dtype))
    else:
        return NotImplemented
    return x


def _masked_fill(x: torch.Tensor, mask: torch.Tensor, value: torch.Tensor | complex) -> Any:
    if not _overlaps_itself(x):
        return NotImplemented
    parts, mask = x, mask.expand(x.shape)
    if _is_expanded(x):
        folds = [dim for dim, step in enumerate(x.meta_spec.stride) if step == 0]
        parts, mask = one_element_per_address(x), mask.any(folds, keepdim=True)
    if not _overlaps_itself(parts):
        parts.masked_fill_(mask, value)
        return x
    # One element of a place is enough. What lies between the windows is in the flat part, and no mask reaches it.
    spec = parts.meta_spec
    flat = parts.as_strided((spec.extent - spec.offset,), (1,))
    place: Any = torch.zeros((), dtype=torch.int64, device=x.device)
    for n, step in zip(spec.size, spec.stride, strict=True):
        place = place.unsqueeze(-1) + torch.arange(int(n), device=x.device) * step
    hits = torch.zeros(flat.shape, dtype=torch.int64, device=x.device)
    hits = hits.scatter_add(0, place.reshape(-1), mask.reshape(-1).to(torch.int64))
    flat.masked_fill_(hits > 0, value)
    return x


_AS_IT_IS = object()
"""The result of a rule for an operator that is recorded itself, and not decomposed."""

_FILLS = frozenset({_aten.fill_.Scalar, _aten.fill_.Tensor})
_ZEROS = frozenset({_aten.zeros.default, _aten.zeros_like.default, _aten.new_zeros.default})

_WRITES: dict[Any, Callable[..., Any]] = {
    _aten.fill_.Scalar: _fill,
    _aten.fill_.Tensor: _fill,
    _aten.zero_.default: _zero,
    _aten.copy_.default: _copy,
    _aten.masked_fill_.Scalar: _masked_fill,
    _aten.masked_fill_.Tensor: _masked_fill,
}
"""For operators that eager allows on such tensors, how they are recorded; `NotImplemented` for all other tensors."""


def reaches_places_twice(func: _torch.operators.Operator, leaf: MetaTensor) -> bool:
    """Returns whether an operator writes elements that are one place, and not the same value into all of them."""
    return leaf.meta_spec.is_expanded if func in _FILLS else leaf.meta_spec.overlaps_itself


def before(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Returns what is called before decompositions of operators, for tensors that overlap themselves."""
    return {func: functools.partial(_first, write, decompositions.get(func)) for func, write in _WRITES.items()}


def _first(write: Callable[..., Any], otherwise: Callable[..., Any] | None, *args: object, **kwargs: object) -> Any:
    result = write(*args, **kwargs)
    if result is _AS_IT_IS:
        return NotImplemented
    return otherwise(*args, **kwargs) if result is NotImplemented and otherwise is not None else result


FIRST = before({})
"""The same for operators that nothing else replaces."""
