"""A view of a dense tensor, from where it lies, by operators that do not ask where the base lies.

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
class RegeneratedView:
    """The arguments of `regenerated_view`, as a function of the base: `view(base)` makes it.

    Attributes:
        size: The sizes.
        stride: The strides, in elements.
        start: Where it begins, in elements after the start of the base.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    start: int

    def __call__(self, base: torch.Tensor) -> torch.Tensor:
        """Makes the view of `base`, which has no gaps."""
        view = regenerated_view(base, self.size, self.stride, self.start)
        assert view is not None, "the trace has tried it on a tensor that looks the same"
        return view


def regenerated_view(
    base: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int
) -> torch.Tensor | None:
    """The view of `base` with these sizes and strides that begins `offset` elements after it.

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
    kept = [dim for dim, (n, step) in enumerate(zip(size, stride, strict=True)) if n > 1 and step > 0]
    order = sorted(kept, key=lambda dim: -stride[dim])
    flat = packed if packed.dim() == 1 else packed.view(-1)
    if 0 in size:
        return flat[:0].view(size)
    view = _opened(flat, offset, [(size[dim], stride[dim]) for dim in order])
    if view is None:
        return packed.as_strided(size, stride, offset) if base.storage_offset() == 0 else None
    view = _permuted(view, [order.index(dim) for dim in kept])
    for dim in range(len(size)):
        if dim not in kept:
            view = view.unsqueeze(dim)
    return view.expand(size) if view.shape != torch.Size(size) else view


def _permuted(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return x if dims == list(range(x.dim())) else x.permute(dims)


def _opened(x: torch.Tensor, offset: int, dims: Dims) -> torch.Tensor | None:
    """Opens the last dim of `x` to `dims`, which begin at `offset` of it; None if it does not divide."""
    if not dims:
        return x.select(-1, offset)
    (n, step), *rest = dims
    if not rest:
        return x[..., offset : offset + (n - 1) * step + 1 : step]
    needed = 1 + sum((m - 1) * s for m, s in rest)
    start = min(offset, x.shape[-1] - n * step)
    if start < 0 or offset - start + needed > step:
        return None
    return _opened(x[..., start : start + n * step].unflatten(-1, (n, step)), offset - start, rest)
