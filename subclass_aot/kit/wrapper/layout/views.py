"""Views of a wrapper, as they act on each of its fields: see Note [Fields that follow].

A field under "broadcast" lines up with the outer tensor as operands of an arithmetic operator do: along each dim it
has the outer size, or size 1. Where it has size 1 it stays. An element of a field under "blocks" stands for a block of
the tensor, and what begins and ends between blocks is cut out of the field. A field under "keep" is the same for every
view.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base._torch.operators import Operator, call_of
from subclass_aot.kit.wrapper.layout.cuts import SEVERAL, cuts_of
from subclass_aot.kit.wrapper.layout.field_map import CannotFollow, FieldMap, field_maps
from subclass_aot.kit.wrapper.layout.strided import as_strided_field

aten: Any = torch.ops.aten
Size = Sequence[int]
ViewRule = Callable[..., Any]
_ALIAS, _SLICE = call_of(aten.alias.default), call_of(aten.slice.Tensor)


def _directly(func: Operator) -> ViewRule:
    return lambda field_map, field, *args, **kwargs: func(field, *args, **kwargs)


def _squeeze(field_map: FieldMap, field: torch.Tensor, dims: int | Sequence[int] | None = None) -> Any:
    outer = field_map.outer
    every = range(len(outer)) if dims is None else [dims] if isinstance(dims, int) else dims
    return aten.squeeze.dims(field, [dim for dim in every if not outer or outer[dim] == 1])


def _select(field_map: FieldMap, field: torch.Tensor, dim: int, index: int) -> Any:
    if field_map[dim]:
        return aten.select.int(field, dim, index)
    cuts_of(aten.select.int, field_map.outer, (dim, index), {})  # which refuses what the tensor has not
    return aten.select.int(field, dim, 0)


def _slice(
    field_map: FieldMap,
    field: torch.Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    elements = field_map[dim]
    if field_map.has_blocks and elements:  # of a cut: see `cut_views`
        if start % elements or end % elements:  # type: ignore[operator]
            name, along = field_map.name, f"{elements} along dim {dim}"
            raise CannotFollow(f"{start} to {end} parts a block: an element of {name} stands for {along}")
        return _SLICE(field, dim, start // elements, end // elements)  # type: ignore[operator]
    if not elements:
        return _ALIAS(field)
    if dim == 0 and step == 1 and type(field) is torch.Tensor and type(start) is type(end) is int:
        return field[start:end]  # the same operator, in half the time
    return _SLICE(field, dim, start, end, step)


def _expand(field_map: FieldMap, field: torch.Tensor, size: Size, **kwargs: Any) -> Any:
    """Expands a field; one that is broadcast along a dim stays so."""
    outer, wanted = field_map.outer, list(size)
    leading = len(wanted) - len(outer)
    for dim in range(len(outer) if leading >= 0 else 0):
        if not field_map[dim]:
            if wanted[leading + dim] not in (-1, outer[dim]):
                raise RuntimeError(f"expand of a tensor of {list(outer)} to {list(size)}")
            wanted[leading + dim] = 1
    return aten.expand.default(field, wanted, **kwargs)


def _split(func: Operator) -> ViewRule:
    def rule(field_map: FieldMap, field: torch.Tensor, sizes: int | Sequence[int], dim: int = 0) -> list[torch.Tensor]:
        if field_map[dim]:
            return list(func(field, sizes, dim))
        return [_ALIAS(field) for _ in cuts_of(func, field_map.outer, (sizes, dim), {})]

    return rule


def _unbind(field_map: FieldMap, field: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    if field_map[dim]:
        return list(aten.unbind.int(field, dim))
    return [aten.select.int(field, dim, 0) for _ in range(field_map.outer[dim])]


def _view(field_map: FieldMap, field: torch.Tensor, size: Size, *_: object) -> Any:
    return aten.view.default(field, new_sizes(field_map, list(size)))


def new_sizes(field_map: FieldMap, new: list[int]) -> list[int]:
    """Computes the sizes of a field after its outer tensor is viewed as `new`, where -1 may stand for one size.

    Both lists of dims are cut into the smallest groups of equal product. A field that is whole in a group follows;
    one that has only ones there has only ones afterwards.

    >>> new_sizes(FieldMap("scale", "broadcast", (4, 1), (4, 6)), [2, 2, -1])
    [2, 2, 1]
    """
    outer = field_map.outer
    field = [1] * field_map.lacking + list(field_map.size)
    if list(outer) == field:
        return new
    if 0 in outer or 0 in new:
        raise CannotFollow("the tensor is empty and the field is not")
    if -1 in new:
        new[new.index(-1)] = math.prod(outer) // math.prod(size for size in new if size != -1)
    sizes: list[int] = []
    i = j = 0
    while i < len(outer) or j < len(new):
        old_start, new_start, left, right = i, j, 1, 1
        if i < len(outer):
            left, i = outer[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while left != right:
            if left < right and i < len(outer):
                left, i = left * outer[i], i + 1
            elif left > right and j < len(new):
                right, j = right * new[j], j + 1
            else:
                raise CannotFollow(f"{list(outer)} has not as many elements as {new}")
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

ALIKE_ALONG: dict[Any, int] = {aten.slice.Tensor: 1, aten.select.int: 1, aten.squeeze.dim: 1}
"""Those that are so if the field has the tensor's size along a dim, and where among the arguments that dim is."""

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
"""For each view operator, the field's part; called with the field's map, the field, and the further arguments."""

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


def is_view(func: object) -> bool:
    """Returns whether an operator is a view, for which `views=` may say what becomes of each field."""
    return func in RULES or func in IN_PLACE or func is aten.as_strided.default


def view_fields(
    func: Operator, rule: ViewRule | None, wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Makes the view `func(wrapper, *args, **kwargs)` of each inner tensor.

    Args:
        func: A key of `RULES`, or `as_strided`.
        rule: What stands there; None of `as_strided`.
        wrapper: The tensor that is viewed, of a class that declares `views=`.
        args: The operator's arguments after the first.
        kwargs: Its keyword arguments.

    Returns:
        By name, the inner tensors of the view, or a list for each where there are several views.

    Raises:
        CannotFollow: A field has no such view.
    """
    names, fields, sizes = wrapper.__tensor_flatten__()[0], [], []
    for name in names:
        field = getattr(wrapper, name)
        fields.append(field)
        sizes.append(field.shape)
    rule = rule or functools.partial(as_strided_field, wrapper)
    made: dict[str, Any] = {}
    name = ""
    try:
        for name, field, field_map in zip(names, fields, field_maps(wrapper, names, sizes), strict=True):
            if field_map.same_for_all:
                many = func in SEVERAL
                made[name] = _ALIAS(field) if not many else [
                    _ALIAS(field) for _ in cuts_of(func, wrapper.shape, args, kwargs)
                ]  # fmt: skip
                continue
            for _ in range(field_map.lacking):
                field = aten.unsqueeze.default(field, 0)
            if field_map.why_not != "" and not field_map.lines_up():
                raise CannotFollow(field_map.why_not)
            made[name] = rule(field_map, field, *args, **kwargs)
    except RuntimeError as error:
        if func not in _OF_STRIDES or type(error) is not RuntimeError:
            raise
        raise CannotFollow(f"{name} has strides {field.stride()}, and torch says: {error}") from None
    return made
