"""`as_strided` on a field: torch's compiler speaks of views of its inputs in this way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from subclass_aot.kit.wrapper.layout.field_map import CannotFollow, FieldMap

aten: Any = torch.ops.aten
Size = Sequence[int]


def as_strided_field(
    wrapper: torch.Tensor,
    field_map: FieldMap,
    field: torch.Tensor,
    size: Size,
    stride: Size,
    storage_offset: int | None = None,
) -> Any:
    """Computes what `wrapper.as_strided(size, stride, storage_offset)` is on a field that lines up with the wrapper.

    Positions are read as indices: a step of `stride` elements is one of so many rows, or columns, of the wrapper, and
    the field steps by as many of its own. Along a dim in which the field is broadcast it stays so.

    Args:
        wrapper: The tensor that is viewed.
        field_map: How the field follows it.
        field: The inner tensor, of as many dims.
        size: The sizes that are wanted.
        stride: The strides that are wanted.
        storage_offset: The offset that is wanted; None for the wrapper's own.

    Returns:
        The view of the field.

    Raises:
        CannotFollow: The view is not made of whole steps along the wrapper's dims.
    """
    whole: Any = wrapper.stride()
    dims = [dim for dim in sorted(range(wrapper.dim()), key=whole.__getitem__, reverse=True) if wrapper.shape[dim] != 1]
    steps = {dim: field.stride(dim) if field_map[dim] else 0 for dim in dims}
    rest: Any = 0 if storage_offset is None else storage_offset - wrapper.storage_offset()
    last = dict.fromkeys(dims, 0)  # the index that the view reaches along each dim
    offset = field.storage_offset()
    for dim in dims:
        if whole[dim]:
            last[dim], rest = rest // whole[dim], rest % whole[dim]  # symbolic numbers have no divmod
            offset += last[dim] * steps[dim]
    begins_before = any(last[dim] < 0 for dim in dims)
    sizes, strides = [], []
    for length, step in zip(size, stride, strict=True):
        dim = next((dim for dim in dims if 0 < whole[dim] <= step), -1) if length != 1 else -1
        if dim == -1:
            rest += step if length != 1 else 0
        else:
            last[dim] += (length - 1) * (step // whole[dim])
            rest += step % whole[dim]
        sizes.append(1 if dim != -1 and not steps[dim] else length)
        strides.append(steps[dim] * (step // whole[dim]) if dim != -1 else 0)
    if rest or begins_before or any(not 0 <= last[dim] < wrapper.shape[dim] for dim in dims):
        wanted = f"as_strided({list(size)}, {list(stride)}, {storage_offset})"
        raise CannotFollow(f"{wanted} is not a view along the dims of {list(wrapper.shape)} with strides {whole}")
    begins = (
        () if storage_offset is None else (offset,)
    )  # no trace notes that the place where the field begins was read
    return aten.as_strided.default(field, sizes, strides, *begins)
