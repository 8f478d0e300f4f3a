"""Where a number stands beside a tensor, as in `x * 2`: how the result lies in memory."""

from __future__ import annotations

from numbers import Number
from typing import Any

import torch

from subclass_aot._torch import Operator
from subclass_aot.operators import effects_of

_mul = torch.ops.aten.mul.Tensor


def beside_number(func: Operator, args: tuple[Any, ...], out: Any) -> Any:
    """Gives the result of an elementwise operator the strides that its kernel gives it.

    A kernel takes a number for a tensor without dims (a wrapped number), and so does not see two operands of one shape,
    of which the result would be packed. Torch's rules for shapes pass over the number, and do. They agree but for dims
    of size one, where strides are a matter of taste, and constructors of some wrapper classes compare them.

    Args:
        func: The operator.
        args: Its arguments, on meta.
        out: Its result, as torch's rules say.
    """
    if torch.Tag.pointwise not in func.tags or type(out) is not torch.Tensor or len(args) < 2:
        return out
    x, other = args[:2]
    if not isinstance(x, torch.Tensor) or not isinstance(other, Number) or effects_of(func).mutates:
        return out
    if not any(type(n) is int and n == 1 for n in x.shape) or list(effects_of(func).parameters)[1] != "other":
        return out
    return out.new_empty_strided(out.shape, _mul(x, x.new_empty(())).stride())
