"""A trainable weight whose products see it rounded to eight bits: quantization-aware training in one small class.

Autograd differentiates the product, not the rounding, so gradients pass straight through it (Bengio et al., 2013,
arXiv:1308.3432); an optimizer updates `master`, since `fallback="each"` runs its operators on it.
"""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.tensors.int8_weight import Int8Weight, quantize

aten = torch.ops.aten


class QuantAwareWeight(WrapperTensor, fallback="each"):
    """A float weight `[M, N]` that matrix products read in int8 codes with one scale along `shared_dim`.

    >>> weight = torch.nn.Parameter(QuantAwareWeight(torch.randn(4, 3)))
    >>> loss = torch.nn.functional.linear(torch.ones(2, 3), weight).sum()
    >>> loss.backward()
    >>> weight.grad.shape
    torch.Size([4, 3])
    """

    master: torch.Tensor
    shared_dim: int = 1

    def rounded(self) -> torch.Tensor:
        """Returns the weight that products see."""
        codes, scale = quantize(self.master, [self.shared_dim])
        return codes.to(scale.dtype) * scale

    def frozen(self) -> Int8Weight:
        """Returns the weight to keep when training is over; its products are the same."""
        return Int8Weight(*quantize(self.master, [self.shared_dim]))


@QuantAwareWeight.implements(aten.t.default)
def _(weight: QuantAwareWeight) -> QuantAwareWeight:
    return QuantAwareWeight(weight.master.t(), 1 - weight.shared_dim)


@QuantAwareWeight.implements(aten.mm.default, aten.addmm.default)
def _(*tensors: torch.Tensor, **scalars: object) -> Any:
    rounded = [tensor.rounded() if isinstance(tensor, QuantAwareWeight) else tensor for tensor in tensors]
    return (aten.mm if len(tensors) == 2 else aten.addmm).default(*rounded, **scalars)
