"""A view of a dense tensor, from where it lies, by operators that do not read where the base lies.

Autograd remembers of most views of dense tensors only what `as_strided` takes: sizes, strides and a place in the
storage. That place is another one in a gradient, and compilers read it in a storage of their own making. `slice`,
`view`, `permute` and their like mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

Dims = Sequence[tuple[int, int]]
"""Sizes and strides of dims, the longest stride first."""


@dataclass(frozen=True, slots=True)
class Strided:
    """Sizes, strides and a place in the memory of a dense tensor: `view(base)` makes it.

    Attributes:
        size: The sizes.
        stride: The strides, in elements.
        start: Where it begins, in elements after the start of the base.
        by_operators: Whether it is made by `regenerated_view`, of a base without gaps, and not by `as_strided`.

    >>> Strided((2,), (3,), 1)(torch.arange(6))
    tensor([1, 4])
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    start: int
    by_operators: bool = False

    def __call__(self, base: torch.Tensor) -> torch.Tensor:
        """Makes the view of `base`."""
        if not self.by_operators:
            return base.as_strided(self.size, self.stride, int(base.storage_offset()) + self.start)
        view = regenerated_view(base, self.size, self.stride, self.start)
        assert view is not None, "the trace has tried it on a tensor of the same metadata"
        return view


def regenerated_view(
    base: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int
) -> torch.Tensor | None:
    """Returns the view of `base` with these sizes and strides that begins `offset` elements after it.

    Returns:
        The view, or None where the base has gaps, and for windows that overlap and some diagonals where the base does
        not begin with its storage.

    >>> base = torch.arange(12).view(3, 4)
    >>> view = regenerated_view(base, (2, 2), (1, 4), 6)
    >>> view.equal(base[1:, 2:].t())
    True
    """
    packed = _permuted(base, sorted(range(base.dim()), key=lambda dim: -base.stride()[dim]))
    if offset < 0 or not packed.is_contiguous():
        return None
    flat = packed if packed.dim() == 1 else packed.view(-1)
    if 0 in size:
        return flat[:0].view(size)
    if not opens(flat.shape[0], size, stride, offset):
        return packed.as_strided(size, stride, offset) if base.storage_offset() == 0 else None
    kept, order = _dims(size, stride)
    return _in_order(_opened(flat, offset, [(size[dim], stride[dim]) for dim in order]), size, kept, order)


def windows(base: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    """Makes the view of `base` with these sizes and strides that begins `offset` elements after it, to be read.

    It is made of windows into windows, so it may be any view of a tensor without gaps. Into a window that leaves gaps,
    functionalization cannot write.

    >>> windows(torch.arange(6), (2, 3), (2, 1), 1)
    tensor([[1, 2, 3],
            [3, 4, 5]])
    """
    packed = _permuted(base, sorted(range(base.dim()), key=lambda dim: -base.stride()[dim]))
    flat = packed if packed.dim() == 1 else packed.view(-1)
    if 0 in size:
        return flat[:0].view(size)
    kept, order = _dims(size, stride)
    view, begins = flat, offset
    for i, dim in enumerate(order):
        inner = 1 + sum((size[d] - 1) * stride[d] for d in order[i + 1 :])
        view = view[..., begins : begins + (size[dim] - 1) * stride[dim] + inner].unfold(-1, inner, stride[dim])
        begins = 0
    return _in_order(view.select(-1, begins), size, kept, order)


def opens(length: int, size: Sequence[int], stride: Sequence[int], offset: int) -> bool:
    """Returns whether a part of a flat tensor is made of slices and of dims that are split: what can be written, too.

    Args:
        length: The number of elements of the flat tensor.
        size: The sizes of the part, none of them zero.
        stride: Its strides.
        offset: Where it begins.
    """
    _, order = _dims(size, stride)
    dims = [(size[dim], stride[dim]) for dim in order]
    for i, (n, step) in enumerate(dims):
        rest = dims[i + 1 :]
        if not rest:
            return offset + (n - 1) * step < length
        start = min(offset, length - n * step)
        if start < 0 or offset - start + 1 + sum((m - 1) * s for m, s in rest) > step:
            return False
        offset, length = offset - start, step
    return offset < length


def _dims(size: Sequence[int], stride: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns the dims along which there are several places, and these with the longest stride first."""
    kept = [dim for dim, (n, step) in enumerate(zip(size, stride, strict=True)) if n > 1 and step > 0]
    return kept, sorted(kept, key=lambda dim: -stride[dim])


def _in_order(view: torch.Tensor, size: Sequence[int], kept: Sequence[int], order: Sequence[int]) -> torch.Tensor:
    """Puts the dims of a view in their places, and repeats it along the others."""
    view = _permuted(view, [order.index(dim) for dim in kept])
    for dim in range(len(size)):
        if dim not in kept:
            view = view.unsqueeze(dim)
    return view.expand(size) if view.shape != torch.Size(size) else view


def _permuted(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return x if dims == list(range(x.dim())) else x.permute(dims)


def _opened(x: torch.Tensor, offset: int, dims: Dims) -> torch.Tensor:
    """Opens the last dim of `x` to `dims`, which begin at `offset` of it. It has room for them: see `opens`."""
    if not dims:
        return x.select(-1, offset)
    (n, step), *rest = dims
    if not rest:
        return x[..., offset : offset + (n - 1) * step + 1 : step]
    start = min(offset, x.shape[-1] - n * step)
    return _opened(x[..., start : start + n * step].unflatten(-1, (n, step)), offset - start, rest)
