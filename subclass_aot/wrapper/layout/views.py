"""The recipe for views: what a view of the wrapper is on one field.

A field under "broadcast" lines up with the outer tensor as operands of an arithmetic operator do: along each dim it
has the outer size, or size 1. Where it has size 1 it stays. A field under "keep" is the same for every view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot._torch import Operator
from subclass_aot.wrapper.layout.strided import CannotFollow as CannotFollow
from subclass_aot.wrapper.layout.strided import as_strided_field

aten: Any = torch.ops.aten
Size = Sequence[int]
ViewRule = Callable[..., Any]


def dim_of(outer: Size, dim: int) -> int:
    """A dim, counted from the first."""
    return dim + len(outer) if dim < 0 else dim


def _stays(outer: Size, field: torch.Tensor, dim: int) -> bool:
    """Whether the field is broadcast along `dim`."""
    return field.shape[dim] == 1 and outer[dim] != 1


def _directly(func: Operator) -> ViewRule:
    return lambda outer, field, *args, **kwargs: func(field, *args, **kwargs)


def _squeeze(outer: Size, field: torch.Tensor, dims: int | Sequence[int] | None = None) -> Any:
    dims = range(len(outer)) if dims is None else [dims] if isinstance(dims, int) else dims
    return aten.squeeze.dims(field, [dim for dim in dims if outer[dim] == 1])


def _select(outer: Size, field: torch.Tensor, dim: int, index: int) -> Any:
    dim = dim_of(outer, dim)
    return aten.select.int(field, dim, 0 if _stays(outer, field, dim) else index)


def _slice(outer: Size, field: torch.Tensor, dim: int = 0, *bounds: Any, **kwargs: Any) -> Any:
    dim = dim_of(outer, dim)
    return aten.alias.default(field) if _stays(outer, field, dim) else aten.slice.Tensor(field, dim, *bounds, **kwargs)


def _expand(outer: Size, field: torch.Tensor, size: Size, **kwargs: Any) -> Any:
    leading = len(size) - len(outer)
    dims = zip(outer, field.shape, size[leading:], strict=True)
    sizes = [
        wanted if whole == 1 else mine for whole, mine, wanted in dims
    ]  # a field that is broadcast elsewhere stays
    return aten.expand.default(field, [*size[:leading], *sizes])


def _split(func: Operator) -> ViewRule:
    def rule(outer: Size, field: torch.Tensor, sizes: int | Sequence[int], dim: int = 0) -> list[torch.Tensor]:
        dim = dim_of(outer, dim)
        if not _stays(outer, field, dim):
            return list(func(field, sizes, dim))
        count = max(1, -(-outer[dim] // sizes)) if isinstance(sizes, int | torch.SymInt) else len(sizes)
        return [aten.alias.default(field) for _ in range(count)]

    return rule


def _unbind(outer: Size, field: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    return [_select(outer, field, dim, i) for i in range(outer[dim_of(outer, dim)])]


def _view(outer: Size, field: torch.Tensor, size: Size, *_: object) -> Any:
    return aten.view.default(field, _new_sizes(outer, field.shape, list(size)))


def _new_sizes(outer: Size, field: Size, new: list[int]) -> list[int]:
    """The sizes of a field after its outer tensor is viewed from `outer` as `new`.

    Both lists of dims are cut into the smallest groups of equal product. A field that is whole in a group follows;
    one that has only ones there has only ones afterwards.
    """
    if -1 in new:
        total, known = 1, 1
        for size in outer:
            total *= size
        for size in new:
            known *= size if size != -1 else 1
        new[new.index(-1)] = total // known if known else 0
    if list(outer) == list(field):
        return new
    if 0 in outer:
        raise CannotFollow("the tensor is empty and the field is not")
    sizes: list[int] = []
    i = j = 0
    while i < len(outer) or j < len(new):
        old_start, new_start, left, right = i, j, 1, 1
        if i < len(outer):
            left, i = outer[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while left != right:
            if left < right:
                left, i = left * outer[i], i + 1
            else:
                right, j = right * new[j], j + 1
        sizes += _group(outer[old_start:i], field[old_start:i], new[new_start:j])
    return sizes


def _group(outer: Size, field: Size, new: list[int]) -> list[int]:
    if list(outer) == list(field):
        return new
    if all(size == 1 for size in field):
        return [1] * len(new)
    raise CannotFollow(
        f"dims {list(outer)} become {new}, and a field has {list(field)} there: neither whole nor broadcast"
    )


ALIKE = (aten.t.default, aten.transpose.int, aten.permute.default, aten.unsqueeze.default)
"""View operators that are the same on a field as on its tensor, if it lines up with that."""

_SQUEEZES = (aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)

OF_ALL_ELEMENTS = frozenset({*ALIKE, *_SQUEEZES})
"""View operators that leave out no element, whatever the sizes, neither of a tensor nor of a field."""

RULES: dict[Any, ViewRule] = {
    **{op: _directly(op) for op in ALIKE},
    **dict.fromkeys(_SQUEEZES, _squeeze),
    aten.select.int: _select,
    aten.slice.Tensor: _slice,
    aten.expand.default: _expand,
    aten.split.Tensor: _split(aten.split.Tensor),
    aten.split_with_sizes.default: _split(aten.split_with_sizes.default),
    aten.unbind.int: _unbind,
    aten.view.default: _view,
    aten._unsafe_view.default: _view,
    aten._reshape_alias.default: _view,
}
"""For each view operator, the field's part; called with the outer size, the field, and the further arguments."""

IN_PLACE: dict[Any, Any] = {
    aten.t_.default: aten.t.default,
    aten.transpose_.default: aten.transpose.int,
    aten.unsqueeze_.default: aten.unsqueeze.default,
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
}
"""For each operator that makes a tensor a view of itself, the view operator."""


_OF_STRIDES = {aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default}
"""View operators that some strides do not allow."""


def lines_up(field: torch.Tensor, outer: torch.Tensor) -> bool:
    """Whether a field has, along each dim, the size that the tensor has, or 1."""
    sizes = zip(field.shape, outer.shape, strict=True)
    return field.dim() == outer.dim() and all(mine in (1, whole) for mine, whole in sizes)


def view_field(
    func: Operator, how: str, wrapper: torch.Tensor, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The view `func(wrapper, *args, **kwargs)` on one inner tensor.

    Args:
        func: A key of `RULES`, or `as_strided`.
        how: "broadcast" or "keep".
        wrapper: The tensor that is viewed.
        name: The name of the inner tensor.
        args: The operator's arguments after the first.
        kwargs: Its keyword arguments.

    Returns:
        The inner tensor of the view, or one for each.

    Raises:
        CannotFollow: The field has no such view.
    """
    outer, field = wrapper.shape, getattr(wrapper, name)
    if how == "keep" or field.dim() == 0 != len(outer):
        if func is aten.as_strided.default:
            return aten.alias.default(field)
        if _torch.schema_of(func).returns[0].type.kind() == "ListType":
            probe = RULES[func](outer, field.new_empty(()).expand(outer), *args, **kwargs)
            return [aten.alias.default(field) for _ in probe]
        return aten.alias.default(field)
    for _ in range(len(outer) - field.dim()):
        field = aten.unsqueeze.default(field, 0)
    if not lines_up(field, wrapper):
        raise CannotFollow(
            f"{name}{list(field.shape)} does not line up with a tensor of {list(outer)}: along each dim it would have "
            "to be as long, or 1"
        )
    if func is aten.as_strided.default:
        return as_strided_field(wrapper, field, *args, **kwargs)
    try:
        return RULES[func](outer, field, *args, **kwargs)
    except RuntimeError as error:
        if func not in _OF_STRIDES or type(error) is not RuntimeError:
            raise
        raise CannotFollow(f"{name} has strides {field.stride()}, and torch says: {error}") from None
