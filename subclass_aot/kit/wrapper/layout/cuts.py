"""Cuts, as views make them: for each of several results, a dim and the elements along it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from subclass_aot.base._torch.operators import Operator
from subclass_aot.kit.wrapper.layout.field_map import dim_of

aten: Any = torch.ops.aten
Size = Sequence[int]


class Cut(NamedTuple):
    """A part of a tensor.

    Attributes:
        dim: Along which dim it is cut, counted from the first.
        start: The first element that it has along that.
        end: The first one after it.
        step: How many elements lie between two of it.
    """

    dim: int
    start: int
    end: int
    step: int = 1


def cuts_of(func: Operator, outer: Size, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Cut]:
    """Lists what a view operator of `CUTS` cuts out of a tensor; a view without the dim has one element along it.

    Args:
        func: The operator.
        outer: The sizes of the tensor.
        args: The operator's arguments after the tensor.
        kwargs: Its keyword arguments.

    Raises:
        RuntimeError: The operator refuses such arguments.
        IndexError: There is no such dim, or no such element.

    >>> cuts_of(aten.split.Tensor, (5, 2), (2,), {})[-1]
    Cut(dim=0, start=4, end=5, step=1)
    """
    return CUTS[func](outer, *args, **kwargs)


def _slice(outer: Size, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> list[Cut]:
    dim = dim_of(outer, dim)
    if step < 1:
        raise RuntimeError(f"slice with a step of {step}, which must be positive")
    length = outer[dim]
    first, last = (0 if start is None else start), (sys.maxsize if end is None else end)
    first, last = (min(max(n + length if n < 0 else n, 0), length) for n in (first, last))
    return [Cut(dim, first, max(first, last), step)]


def _split(outer: Size, sizes: int | Size, dim: int = 0) -> list[Cut]:
    dim = dim_of(outer, dim)
    length = outer[dim]
    if not isinstance(sizes, Sequence):
        if sizes < 0 or sizes == 0 != length:
            raise RuntimeError(f"split into parts of {sizes}, along a dim of {length}")
        count = -(-length // sizes) if length else 1  # of symbolic sizes, this number is all that is assumed
        starts = [i * sizes for i in range(count)]
        return [Cut(dim, start, end) for start, end in zip(starts, [*starts[1:], length], strict=True)]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    if any(size < 0 for size in sizes) or (ends[-1] if ends else 0) != length:
        raise RuntimeError(f"split into parts of {list(sizes)}, which do not add up to the {length} of dim {dim}")
    return [Cut(dim, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _select(outer: Size, dim: int, index: int) -> list[Cut]:
    dim = dim_of(outer, dim)
    first = index + outer[dim] if index < 0 else index
    if not 0 <= first < outer[dim]:
        raise IndexError(f"select of element {index} along dim {dim} of a tensor of {list(outer)}")
    return [Cut(dim, first, first + 1)]


def _unbind(outer: Size, dim: int = 0) -> list[Cut]:
    dim = dim_of(outer, dim)
    return [Cut(dim, i, i + 1) for i in range(outer[dim])]


CUTS: dict[Any, Callable[..., list[Cut]]] = {
    aten.slice.Tensor: _slice,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.select.int: _select,
    aten.unbind.int: _unbind,
}
"""For each view operator that cuts, what it cuts."""
SEVERAL = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}
"""Those that give several views."""
WITHOUT_DIM = {aten.select.int, aten.unbind.int}
"""Those whose views lack the dim along which they are cut."""
