"""Rows of quantized tensors that are written or moved: what is written is rounded, and the rest stays as it is.

Along a dim in which each field is as long as the tensor, the parts of the tensor are independent of one another, as
rows are that have scales of their own. So they can be exchanged one by one, field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from subclass_aot.kit.wrapper import WrapperTensor, shares_fields
from subclass_aot.tensors.quantizing.rows import CLASSES, as_bits, follow

aten: Any = torch.ops.aten


def _index_select(weight: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    return _each(lambda field: field.index_select(dim, index), weight) if follow(weight, dim) else NotImplemented


def _roll(weight: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    are_known = len(dims) > 0 and follow(weight, *dims)
    return _each(lambda field: field.roll(shifts, dims), weight) if are_known else NotImplemented


def _cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    first = tensors[0]
    if not follow(first, dim) or not all(_are_alike(first, other, dim) for other in tensors[1:]):
        return NotImplemented
    return _each(lambda *fields: torch.cat(fields, dim), *tensors)


def _index_copy_(weight: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    if not _is_written_alone(weight, dim) or index.dim() != 1:
        return NotImplemented
    rows = source
    if not _are_alike(weight, source, dim):
        rows = _each(lambda field: field.index_select(dim, index), weight)
        if rows.shape != source.shape or rows.dtype != source.dtype:
            return NotImplemented  # to what refuses it
        rows.copy_(source)
    for field, new in _fields(weight, rows):
        field.index_copy_(dim, index, new)
    return weight


def _index_put_(
    weight: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Any:
    places = {dim: index for dim, index in enumerate(indices) if index is not None}
    are_numbers = all(index.dtype in (torch.int64, torch.int32) for index in places.values())
    if accumulate or not are_numbers or not _is_written_alone(weight, *places) or values.dtype != weight.dtype:
        return NotImplemented
    rows = _each(lambda field: aten.index.Tensor(field, indices), weight)
    rows.copy_(values)
    for field, new in _fields(weight, rows):
        aten.index_put_.default(field, indices, new)  # whose Python method takes no None
    return weight


def _zero_(weight: torch.Tensor) -> Any:
    if not _is_written_alone(weight):
        return NotImplemented
    for (field,) in _fields(weight):
        field.zero_()
    return weight


def _is_written_alone(weight: Any, *dims: int) -> bool:
    """Returns whether a write along some dims of it is one into each field: what fields are made of is its own.

    Columns of a weight have blocks and scales of their own, and these have what they are made of in common with the
    other columns.
    """
    if not follow(weight, *dims):
        return False
    fields = (getattr(weight, name) for name in weight.__tensor_flatten__()[0])
    return not any(isinstance(field, WrapperTensor) and shares_fields(field) for field in fields)


def _fields(*weights: Any) -> Iterator[list[torch.Tensor]]:
    """Yields the dense tensors at each place of weights that are made alike."""
    for name in weights[0].__tensor_flatten__()[0]:
        fields = [getattr(weight, name) for weight in weights]
        if isinstance(fields[0], WrapperTensor):
            yield from _fields(*fields)
        else:
            yield [as_bits(field) for field in fields]


def _each(run: Callable[..., torch.Tensor], *weights: Any) -> Any:
    """Returns a weight of what a function makes of the dense tensors at each place."""
    made = {}
    for name in weights[0].__tensor_flatten__()[0]:
        fields = [getattr(weight, name) for weight in weights]
        if isinstance(fields[0], WrapperTensor):
            made[name] = _each(run, *fields)
        else:
            made[name] = run(*map(as_bits, fields)).view(fields[0].dtype)
    return type(weights[0])(**made)


def _are_alike(weight: Any, other: Any, dim: int) -> bool:
    """Returns whether a weight is made as another one is, and has its sizes but along a dim."""
    if type(weight) is not type(other) or weight.__tensor_flatten__() != other.__tensor_flatten__():
        return False
    if weight.dim() != other.dim() or not follow(other, dim):
        return False
    kept = [each for each in range(weight.dim()) if each != dim % weight.dim()]
    pairs = list(_fields(weight, other))
    return all(x.dtype == y.dtype and all(x.shape[each] == y.shape[each] for each in kept) for x, y in pairs)


for _cls in CLASSES:
    _cls.implements(aten.index_select.default)(_index_select)
    _cls.implements(aten.roll.default)(_roll)
    _cls.implements(aten.cat.default)(_cat)
    _cls.implements(aten.index_copy_.default)(_index_copy_)
    _cls.implements(aten.index_put_.default)(_index_put_)
    _cls.implements(aten.zero_.default)(_zero_)
