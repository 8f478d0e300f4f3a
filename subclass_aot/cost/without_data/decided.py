"""What operators give that some of their operands decide, whatever the others are: true `or` anything is true.

A loop that waits for all sequences to end, `done |= tokens == end`, ends at the longest length, though nobody knows
which tokens come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import effects_of
from subclass_aot.cost.without_data.rows import same_everywhere
from subclass_aot.meta import MetaTensor, Spec

_aten = torch.ops.aten
_Operand = torch.Tensor | float | None
"""A constant, a number, or what is not known."""
_Known = Callable[[MetaTensor], torch.Tensor | None]


def is_decided(func: Operator) -> bool:
    """Returns whether some of the operands may decide what an operator gives."""
    return func.overloadpacket in _RULES


def decided(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], known: _Known, result: Spec) -> Any:
    """Returns the constant that an operator gives, where the operands that are known decide it; else None.

    Args:
        func: One of those that are decided so.
        args: Its arguments; some have no constants.
        kwargs: Its keyword arguments.
        known: Returns the constant of a leaf, or None.
        result: What it gives without data.
    """
    bound = effects_of(func).bind(args, kwargs)

    def constant(value: object) -> Any:
        return known(value) if type(value) is MetaTensor else value

    with _torch.dispatch.disable_current_modes(), torch.no_grad():
        value = _RULES[func.overloadpacket](result.dtype, *map(constant, bound.values()))
        if value is None:
            return None
        return torch.as_tensor(value).to(result.dtype).expand(result.size)


def _bits(absorbing: bool) -> Callable[..., Any]:
    """Makes the rule of an operator on bits that gives one operand where that has all of them, or none."""

    def rule(dtype: torch.dtype, x: _Operand, y: _Operand, *out: object) -> Any:
        bits = absorbing if dtype is torch.bool else -1 if absorbing else 0
        return bits if any(value is not None and _is_all(value, bits) for value in (x, y)) else None

    return rule


def _is_all(value: torch.Tensor | float, number: float) -> bool:
    """Returns whether each element is a number; of a constant of expanded rows, one is looked at."""
    if not isinstance(value, torch.Tensor):
        return bool(value == number)
    one = value[tuple(slice(None) if step else slice(1) for step in value.stride())]
    return bool(value.numel()) and bool((one == number).all())


def _true(value: _Operand) -> Any:
    return None if value is None else value.bool() if isinstance(value, torch.Tensor) else bool(value)


def _logical(absorbing: bool) -> Callable[..., Any]:
    def rule(dtype: torch.dtype, x: _Operand, y: _Operand, *out: object) -> Any:
        return absorbing if any(value is not None and _is_all(_true(value), absorbing) for value in (x, y)) else None

    return rule


def _product(dtype: torch.dtype, x: _Operand, y: _Operand, *out: object) -> Any:
    """Gives zero for zero times any integer; zero times a number that is not finite is no number."""
    if dtype.is_floating_point or dtype.is_complex:
        return None
    return 0 if any(value is not None and _is_all(value, 0) for value in (x, y)) else None


def _where(dtype: torch.dtype, condition: _Operand, x: _Operand = None, y: _Operand = None, *out: object) -> Any:
    if condition is None:
        both = [same_everywhere(value) if isinstance(value, torch.Tensor) else value for value in (x, y)]
        return both[0] if both[0] == both[1] else None  # whatever it is
    return x if _is_all(_true(condition), True) else y if _is_all(_true(condition), False) else None


def _filled(dtype: torch.dtype, x: _Operand, mask: _Operand, value: _Operand) -> Any:
    return _where(dtype, mask, value, x)


_RULES: dict[Any, Callable[..., Any]] = {
    **{getattr(_aten, name): _bits(True) for name in ("bitwise_or", "bitwise_or_", "__or__", "__ior__")},
    **{getattr(_aten, name): _bits(False) for name in ("bitwise_and", "bitwise_and_", "__and__", "__iand__")},
    **{getattr(_aten, name): _logical(True) for name in ("logical_or", "logical_or_")},
    **{getattr(_aten, name): _logical(False) for name in ("logical_and", "logical_and_")},
    **{getattr(_aten, name): _product for name in ("mul", "mul_")},
    **{getattr(_aten, name): _filled for name in ("masked_fill", "masked_fill_")},
    _aten.where: _where,
    _aten.copy_: lambda dtype, x, y, *_: y,
}
