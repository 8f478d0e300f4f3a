"""Rows of quantized weights by their numbers: an embedding makes those dense that it reads, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from subclass_aot.kit.wrapper import ViewOf, WrapperTensor

aten: Any = torch.ops.aten
_Class = TypeVar("_Class", bound=WrapperTensor)


def picks_rows(cls: type[_Class]) -> type[_Class]:
    """Declares a class of which each field has the rows of the tensor, or one for all of them.

    Args:
        cls: The class; its rows are its first dim, and its `to_plain` makes any of them dense.
    """
    cls.implements(aten.embedding.default)(_embedding)
    cls.implements(aten.index_select.default)(_index_select)
    cls.implements(aten.index.Tensor)(_index)
    return cls


def _embedding(weight: Any, indices: torch.Tensor, *options: object, **others: object) -> Any:
    return _rows(weight, indices) if _has_rows(weight) else NotImplemented


def _index_select(weight: Any, dim: int, index: torch.Tensor) -> Any:
    is_first = _has_rows(weight) and weight.dim() > 1 and dim in (0, -weight.dim())
    return _rows(weight, index) if is_first and index.dim() == 1 else NotImplemented


def _index(weight: Any, indices: Sequence[torch.Tensor | None]) -> Any:
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
