"""Layouts of elementwise results: as torch's `TensorIterator` chooses them.

Torch's rules for shapes have this from Python functions that sort dims by strides. Kernels look first for operands that
are all packed, in one of two orders, and only sort where these are not. Both agree on dims of more than one place.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from numbers import Number
from typing import Any

import torch

from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import effects_of
from subclass_aot.meta import strides
from subclass_aot.meta.strides import Strides, same
from subclass_aot.meta.symbols import Number as Size

Tensor = torch.Tensor


def laid_out(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, casts: bool = False) -> Any:
    """Gives the result of an elementwise operator the strides that its kernel gives it.

    Args:
        func: The operator.
        args: Its arguments, on meta.
        kwargs: Its named arguments, likewise.
        out: Its result, as torch's rules say.
        casts: Whether kernels cast tensors of other dtypes before, as those of the CPU do.
    """
    if type(out) is not Tensor or out.dim() == 0 or not is_iterated(func) or effects_of(func).mutates:
        return out
    operands = list(_operands(func, args, kwargs))
    try:
        stride = iterated(out.shape, _cast(func, operands) if casts else operands)
    except strides.Unknown:
        return out
    return out if stride == tuple(out.stride()) else out.new_empty_strided(out.shape, stride)


def iterated(shape: Sequence[Size], operands: Sequence[Tensor]) -> Strides:
    """Computes the strides of what a kernel computes elementwise of tensors.

    Args:
        shape: The sizes of the result.
        operands: The tensors, in the order in which the kernel takes them.

    Raises:
        strides.Unknown: They have symbolic strides, and nobody can tell.
    """
    if all(len(x.shape) == len(shape) and all(map(same, x.shape, shape)) for x in operands):
        packed = strides.packed(shape)
        if all(_lies_as(x, packed) for x in operands):
            return packed
        if len(shape) == 4 and all(_lies_as(x, strides.channels_last(shape)) for x in operands):
            return strides.channels_last(shape)
        first = operands[0]
        is_same = all(all(map(same, x.stride(), first.stride())) for x in operands[1:])
        if is_same and strides.is_non_overlapping_and_dense(first.shape, first.stride()):
            return tuple(first.stride())
    return strides.packed(shape, strides.sorted_dims(shape, [_expanded(x, shape) for x in operands]))


def is_iterated(func: Operator) -> bool:
    """Returns whether an operator is elementwise: its kernel iterates over all tensors at once."""
    return func.namespace == "aten" and (torch.Tag.pointwise in func.tags or func in _UNTAGGED) and func not in _OTHERS


def _operands(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """Yields the tensors that the kernel iterates over; a number that it takes for one is a tensor without dims."""
    effects = effects_of(func)
    given = effects.bind(args, kwargs)
    for name in ORDER_OF_OPERANDS.get(func, effects.parameters):
        value = given.get(name)
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Number) and (effects.parameters[name] == "tensor" or name in _TAKEN_FOR_TENSORS):
            yield torch.empty((), device="meta")


def _cast(func: Operator, operands: list[Tensor]) -> list[Tensor]:
    """Returns what a kernel iterates over, once tensors of other dtypes are cast as by `to`."""
    if func is _aten.where.self:
        condition, *operands = operands
        return [condition, *_cast(_aten.add.Tensor, operands)]
    dtypes = {x.dtype for x in operands if x.dim()}
    if len(dtypes) < 2:
        return operands
    common = functools.reduce(torch.promote_types, dtypes)
    return [
        x if x.dtype is common or not x.dim() else x.new_empty_strided(x.shape, strides.preserved(x)) for x in operands
    ]


def _lies_as(x: Tensor, expected: Strides) -> bool:
    """Returns whether a tensor has these strides in all dims of more than one place."""
    sizes = zip(x.shape, x.stride(), expected, strict=True)
    is_empty = any(type(size) is int and size == 0 for size in x.shape)
    return is_empty or all(same(size, 1) or same(mine, other) for size, mine, other in sizes)


def _expanded(x: Tensor, shape: Sequence[Size]) -> list[Size]:
    """Returns the strides in the dims of a result; 0 where a dim is absent, or has one place that is repeated."""
    absent = len(shape) - x.dim()
    found: list[Size] = [0] * absent
    for mine, size, stride in zip(x.shape, shape[absent:], x.stride(), strict=True):
        found.append(0 if same(mine, 1) and not same(size, 1) else stride)
    return found


_aten = torch.ops.aten
_TAKEN_FOR_TENSORS = frozenset({"self", "other", "x", "n"})
"""Parameters that are numbers by their schema, and for which kernels take tensors without dims."""
_OTHERS = frozenset({_aten.clone.default, _aten.equal.default})
"""Operators that torch calls elementwise, and that are not."""
_UNTAGGED = frozenset(
    {
        _aten.elu_backward.default,
        _aten.floor_divide.default,
        _aten.floor_divide.Scalar,
        _aten.hardsigmoid_backward.default,
        _aten.hardswish.default,
        _aten.hardswish_backward.default,
        _aten.hardtanh_backward.default,
        _aten.leaky_relu_backward.default,
        _aten.mish_backward.default,
        _aten.softplus_backward.default,
    }
)
"""Operators that are elementwise, and that torch does not call so."""
ORDER_OF_OPERANDS: dict[Operator, tuple[str, ...]] = {
    _aten.leaky_relu_backward.default: ("self", "grad_output"),
    _aten.threshold_backward.default: ("self", "grad_output"),
}
"""The parameters that a kernel iterates over, in its order, where that is not theirs."""
