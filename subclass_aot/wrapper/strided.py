"""`as_strided` on a field: torch's compiler speaks of views of its inputs in this way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

aten: Any = torch.ops.aten


class CannotFollow(Exception):
    """A field that cannot be viewed as the outer tensor is; the message says why."""


def as_strided_field(
    wrapper: torch.Tensor,
    field: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Any:
    """What `wrapper.as_strided(size, stride, storage_offset)` is on a field that lines up with the wrapper.

    Positions are read as indices: a step of `stride` elements is one of so many rows, or columns, of the wrapper, and the field
    steps by as many of its own (by none where it is broadcast).

    Args:
        wrapper: The tensor that is viewed.
        field: Its inner tensor, of as many dims.
        size: The sizes asked for.
        stride: The strides asked for.
        storage_offset: The offset asked for; None for the wrapper's own.

    Returns:
        The view of the field.

    Raises:
        CannotFollow: The view is not made of whole steps along the wrapper's dims.
    """
    dims = sorted(
        (dim for dim in range(wrapper.dim()) if wrapper.shape[dim] != 1), key=lambda dim: -wrapper.stride(dim)
    )
    steps = {dim: 0 if field.shape[dim] == 1 else field.stride(dim) for dim in dims}
    last = dict.fromkeys(dims, 0)  # the index that the view reaches along each dim
    offset, rest = field.storage_offset(), (storage_offset or 0) - wrapper.storage_offset()
    if storage_offset is None:
        rest = 0
    for dim in dims:
        last[dim], rest = divmod(rest, wrapper.stride(dim)) if wrapper.stride(dim) else (0, rest)
        offset += last[dim] * steps[dim]
    strides = []
    for length, step in zip(size, stride, strict=True):
        dim = next((dim for dim in dims if 0 < wrapper.stride(dim) <= step), None)
        if dim is None or length == 1:
            strides.append(0)
            rest += step if length != 1 else 0
            continue
        count, more = divmod(step, wrapper.stride(dim))
        rest += more
        last[dim] += (length - 1) * count
        strides.append(count * steps[dim])
    if rest or any(not 0 <= last[dim] < wrapper.shape[dim] for dim in dims):
        asked = f"as_strided({list(size)}, {list(stride)}, {storage_offset})"
        raise CannotFollow(
            f"{asked} is not a view along the dims of {list(wrapper.shape)} with strides {wrapper.stride()}"
        )
    return aten.as_strided.default(field, list(size), strides, offset)
