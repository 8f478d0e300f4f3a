"""Rows of quantized weights by their numbers: an embedding makes those dense that it reads, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from subclass_aot.kit.wrapper import ViewOf, WrapperTensor
from subclass_aot.tensors.float8_weight import Float8Weight
from subclass_aot.tensors.int4_weight import Int4Weight
from subclass_aot.tensors.int8_weight import Int8Weight
from subclass_aot.tensors.nf4_weight import NF4Weight, Scales

aten: Any = torch.ops.aten

CLASSES: tuple[type[WrapperTensor], ...] = (Int8Weight, Float8Weight, Int4Weight, NF4Weight)
"""Each field of theirs has the rows of the tensor, or one for all."""


def _embedding(weight: object, indices: torch.Tensor, *options: object, **others: object) -> Any:
    return _rows(weight, indices) if _has_rows(weight) else NotImplemented


def _index(weight: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    first, *rest = indices
    is_first = _has_rows(weight) and weight.dim() > 1 and not any(x is not None for x in rest)
    if not is_first or first is None or first.dtype not in (torch.int64, torch.int32):
        return NotImplemented
    return _rows(weight, torch.where(first < 0, first + weight.shape[0], first))


def _has_rows(weight: object) -> bool:
    """Returns whether it is a weight of such a class, and no view that reads through one."""
    return isinstance(weight, WrapperTensor) and not isinstance(weight, ViewOf)


def follow(weight: Any, *dims: int) -> bool:
    """Returns whether it is a weight of such a class, each field of which is as long along some dims."""
    if not isinstance(weight, CLASSES + (Scales,)) or any(not -weight.dim() <= dim < weight.dim() for dim in dims):
        return False
    return all(
        follow(field, *dims)
        if isinstance(field, WrapperTensor)
        else field.dim() == weight.dim() and all(field.shape[dim] == weight.shape[dim] for dim in dims)
        for field in map(weight.__getattribute__, weight.__tensor_flatten__()[0])
    )


def _rows(weight: Any, indices: torch.Tensor) -> torch.Tensor:
    """Returns rows of a weight as a dense tensor."""
    rows: torch.Tensor = _picked(weight, indices.reshape(-1)).to_plain()
    return rows.reshape(*indices.shape, *weight.shape[1:])


def _picked(weight: Any, index: torch.Tensor) -> Any:
    """Returns a weight of some rows."""
    fields = {}
    for name in weight.__tensor_flatten__()[0]:
        field = getattr(weight, name)
        if isinstance(field, WrapperTensor):
            fields[name] = _picked(field, index)
        elif field.shape[0] == 1 and weight.shape[0] != 1:
            fields[name] = field
        else:
            fields[name] = as_bits(field).index_select(0, index).view(field.dtype)
    return type(weight)(**fields)


def as_bits(field: torch.Tensor) -> torch.Tensor:
    """Returns a field as torch has kernels for it that move elements: it has none for floats of eight bits."""
    is_float8 = field.dtype.is_floating_point and field.dtype.itemsize == 1
    return field.view(torch.uint8) if is_float8 else field


for _cls in CLASSES:
    _cls.implements(aten.embedding.default)(_embedding)
    _cls.implements(aten.index.Tensor)(_index)
