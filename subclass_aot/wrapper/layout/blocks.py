"""The recipe "blocks" for views: an element of a field stands for a block of the tensor, as a packed code does.

Note [Blocks]
~~~~~~~~~~~~~
Along each dim, the size of such a field divides that of the tensor, and an element stands for as many of the tensor's
as the ratio says. What begins and ends between blocks is cut out of the field; a view that parts a block, turns dims
round or joins them cannot be: it reads through the whole, see Note [Views that read through]. A row alone is such a
view, too, of the tensor that has this row only: what a field means without one of its dims nobody has said.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from subclass_aot import _torch
from subclass_aot._torch import Operator
from subclass_aot.wrapper.declare.construct import assemble, inner_tensors
from subclass_aot.wrapper.declare.outer import outer_of
from subclass_aot.wrapper.layout import views
from subclass_aot.wrapper.layout.rows import how_viewed
from subclass_aot.wrapper.layout.shared_fields import shares_with
from subclass_aot.wrapper.layout.strided import CannotFollow
from subclass_aot.wrapper.serve.plain import read_through

if TYPE_CHECKING:  # which is made with this
    from subclass_aot.wrapper.base import WrapperTensor

aten: Any = torch.ops.aten
Cut = tuple[int, int, int]
"""A dim, and the first and the last element along it, which is left out."""


def cut_views(func: Operator, wrapper: WrapperTensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The view `func(wrapper, *args, **kwargs)` of a class with `views="blocks"`, or each of several.

    Raises:
        CannotFollow: It does not begin and end between blocks.
    """
    if func not in CUTS:
        raise CannotFollow(f"{func} does more than to cut between the blocks that an element of a field stands for")
    cuts = [_cut(wrapper, *cut) for cut in CUTS[func](wrapper.shape, *args, **kwargs)]
    if func not in _WITHOUT_DIM:
        return cuts if func in _SEVERAL else cuts[0]
    if any(shares_with(cut, wrapper) for cut in cuts):
        raise CannotFollow("the view shares a field with the rest of the tensor")
    dim = args[0] if args else kwargs.get("dim", 0)
    rows = [read_through(aten.select.int, cut, (dim, 0), {}) for cut in cuts]
    return rows if func in _SEVERAL else rows[0]


def _cut(wrapper: Any, dim: int, start: int, end: int) -> Any:
    cls = type(wrapper)
    state = wrapper.__wrapper_state__()
    for name, field in inner_tensors(wrapper).items():
        how = how_viewed(cls, name)
        if how == "blocks" and field.dim():
            state[name] = _cut_field(name, field, wrapper.shape, dim, start, end)
        else:
            state[name] = views.view_field(aten.slice.Tensor, how, wrapper, name, (dim, start, end), {})
    size = [*wrapper.shape[:dim], end - start, *wrapper.shape[dim + 1 :]]
    told = list(outer_of(cls, state).size)
    if told != size:
        raise CannotFollow(f"the class says that its fields are then those of a tensor of {told}, and not of {size}")
    cut = assemble(cls, state, size, wrapper.stride())
    _torch.set_geometry(cut, size, wrapper.stride(), wrapper.storage_offset() + start * wrapper.stride(dim))
    _torch.alias_outer_storage(cut, wrapper)
    return cut


def _cut_field(name: str, field: torch.Tensor, outer: Sequence[int], dim: int, start: int, end: int) -> Any:
    """The part of a field that stands for the elements from `start` to `end` along a dim."""
    if field.dim() != len(outer) or any(n % max(blocks, 1) for n, blocks in zip(outer, field.shape, strict=True)):
        raise CannotFollow(f"the sizes of {name}{list(field.shape)} do not divide those of a tensor of {list(outer)}")
    length = outer[dim] // max(field.shape[dim], 1)
    if length == 0:  # of a tensor without elements
        return aten.alias.default(field)
    if start % length or end % length:
        raise CannotFollow(f"{start} to {end} parts a block: an element of {name} stands for {length} along dim {dim}")
    return aten.slice.Tensor(field, dim, start // length, end // length)


def block_sizes(field: Sequence[int], outer: Sequence[int], wanted: Sequence[int]) -> list[int] | None:
    """The sizes of a field in a tensor of `wanted`, where it has those of `field` in one of `outer`; or None."""
    if not len(field) == len(outer) == len(wanted):
        return None
    sizes = []
    for blocks, length, size in zip(field, outer, wanted, strict=True):
        if blocks == 0 or length % blocks or size % (length // blocks):
            return None
        sizes.append(size * blocks // length)
    return sizes


def _slice(
    outer: Sequence[int], dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> list[Cut]:
    dim = views.dim_of(outer, dim)
    if step != 1:
        raise CannotFollow(f"steps of {step} part blocks")
    length = outer[dim]
    first, last = (0 if start is None else start), (sys.maxsize if end is None else end)
    first, last = (min(max(n + length if n < 0 else n, 0), length) for n in (first, last))
    return [(dim, first, max(first, last))]


def _split(outer: Sequence[int], sizes: int | Sequence[int], dim: int = 0) -> list[Cut]:
    dim = views.dim_of(outer, dim)
    length = outer[dim]
    if not isinstance(sizes, Sequence):
        return [(dim, start, min(start + sizes, length)) for start in range(0, max(length, 1), sizes)]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [(dim, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _select(outer: Sequence[int], dim: int, index: int) -> list[Cut]:
    dim = views.dim_of(outer, dim)
    first = index + outer[dim] if index < 0 else index
    return [(dim, first, first + 1)]


def _unbind(outer: Sequence[int], dim: int = 0) -> list[Cut]:
    dim = views.dim_of(outer, dim)
    return [(dim, i, i + 1) for i in range(outer[dim])]


CUTS: dict[Any, Callable[..., list[Cut]]] = {
    aten.slice.Tensor: _slice,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.select.int: _select,
    aten.unbind.int: _unbind,
}
"""For each view that cuts, what it cuts."""
_SEVERAL = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}
_WITHOUT_DIM = {aten.select.int, aten.unbind.int}
