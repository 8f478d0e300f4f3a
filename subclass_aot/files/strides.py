"""Strides, which files do not keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from subclass_aot.errors import StateDictError


def with_stride(tensor: torch.Tensor, stride: Sequence[int], place: str) -> torch.Tensor:
    """Returns a tensor as it is, if it has these strides, or a copy that has.

    Where several elements were one in memory, they have one value, so the copy may write them one after the other.
    Torch refuses that for dims of stride 0, of which one element is copied.

    Args:
        tensor: A dense tensor.
        stride: The strides that it had when it was saved.
        place: Its name, for errors.

    Raises:
        StateDictError: No tensor of that size has them.
    """
    if len(stride) != tensor.dim():
        raise StateDictError(f"{place} has {tensor.dim()} dims, and the strides {list(stride)} were saved")
    if all(
        size < 2 or mine == theirs for size, mine, theirs in zip(tensor.shape, tensor.stride(), stride, strict=True)
    ):
        if tuple(stride) == tensor.stride():
            return tensor
        with _errors_of(stride, place):
            return tensor.as_strided(tensor.shape, list(stride))
    once = tensor
    for dim, step in enumerate(stride):
        once = once[(slice(None),) * dim + (slice(0, 1),)] if step == 0 else once
    with _errors_of(stride, place):
        copy = torch.empty_strided(once.shape, list(stride), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(once).expand(tensor.shape)


@contextmanager
def _errors_of(stride: Sequence[int], place: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, TypeError, OverflowError) as error:
        raise StateDictError(f"{place} cannot have the strides {list(stride)}: {error}") from error
