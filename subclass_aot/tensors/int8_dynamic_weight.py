"""A weight in eight bits whose products are sums of integers: the other operand is rounded, too, at each call.

As in LLM.int8() (Dettmers et al., 2022, arXiv:2208.07339, section 3), without its parts in float.
"""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.base._torch import quantized
from subclass_aot.tensors.int8_weight import Int8Weight, plus, quantize
from subclass_aot.tensors.products import int_product

aten: Any = torch.ops.aten


class Int8DynamicWeight(Int8Weight, views="broadcast"):
    """An `Int8Weight` whose products `x @ weight.t()` round each row of `x` to eight bits; gradients do not see that.

    >>> weight = Int8DynamicWeight.from_float(torch.tensor([[1.0, -2.0], [0.5, 0.25]]))
    >>> torch.nn.functional.linear(torch.eye(2), weight)
    tensor([[ 1.0079,  0.5000],
            [-2.0000,  0.2520]])
    """


@Int8DynamicWeight.implements(aten.mm.default)
def mm(a: torch.Tensor, b: torch.Tensor) -> Any:
    if not isinstance(b, Int8DynamicWeight) or b.zero_point is not None or b.scale.shape[:-1] != (1,):
        return NotImplemented
    if not quantized.takes_two_int8(a, b.codes, b.scale):
        return NotImplemented
    rounded, steps = quantize(a, [1])
    sums = int_product(rounded, b.codes)
    if a.dtype is torch.float16:  # whose largest number is less than such a sum
        return (sums * (steps.float() * b.scale.float())).to(a.dtype)
    return sums * (steps * b.scale)


@Int8DynamicWeight.implements(aten.addmm.default)
def _(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    product = mm(a, b)
    return product if product is NotImplemented else plus(bias, product, beta, alpha)
