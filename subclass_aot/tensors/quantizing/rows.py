"""Rows of quantized weights by their numbers: an embedding makes those dense that it reads, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from subclass_aot.kit.wrapper import ViewOf, WrapperTensor
from subclass_aot.tensors.float8_weight import Float8Weight
from subclass_aot.tensors.int4_weight import Int4Weight
from subclass_aot.tensors.int8_weight import Int8Weight
from subclass_aot.tensors.nf4_weight import NF4Weight

aten: Any = torch.ops.aten


def _embedding(weight: object, indices: torch.Tensor, *options: object, **others: object) -> Any:
    return _rows(weight, indices) if _has_rows(weight) else NotImplemented


def _index_select(weight: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    is_first = _has_rows(weight) and weight.dim() > 1 and dim in (0, -weight.dim())
    return _rows(weight, index) if is_first and index.dim() == 1 else NotImplemented


def _index(weight: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    first, *rest = indices
    is_first = _has_rows(weight) and weight.dim() > 1 and not any(x is not None for x in rest)
    if not is_first or first is None or first.dtype not in (torch.int64, torch.int32):
        return NotImplemented
    return _rows(weight, torch.where(first < 0, first + weight.shape[0], first))


def _has_rows(weight: object) -> bool:
    """Returns whether it is a weight of such a class, and no view that reads through one."""
    return isinstance(weight, WrapperTensor) and not isinstance(weight, ViewOf)


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
            fields[name] = _selected(field, index)
    return type(weight)(**fields)


def _selected(field: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    if field.dtype.is_floating_point and field.dtype.itemsize == 1:  # torch has no kernel for them
        return field.view(torch.uint8).index_select(0, index).view(field.dtype)
    return field.index_select(0, index)


for _cls in (Int8Weight, Float8Weight, Int4Weight, NF4Weight):  # each field has the rows of the tensor, or one for all
    _cls.implements(aten.embedding.default)(_embedding)
    _cls.implements(aten.index_select.default)(_index_select)
    _cls.implements(aten.index.Tensor)(_index)
