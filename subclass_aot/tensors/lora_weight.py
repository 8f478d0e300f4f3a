"""A weight beside a product of two thin matrices, which alone are trained: low-rank adaptation.

From LoRA (Hu et al., 2021, arXiv:2106.09685, equation 3); with a quantized base, QLoRA (arXiv:2305.14314, equation 5).
"""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.kit.wrapper import Outer, WrapperTensor

aten: Any = torch.ops.aten


class LoraWeight(WrapperTensor):
    """A `[M, N]` weight that stands for `base + gain * left @ right`.

    Its factors are trained by `subclass_aot.train_fields(module, "weight", "left", "right")`.

    >>> weight = LoraWeight.beside(torch.randn(4, 3), rank=2)
    >>> weight
    LoraWeight(float32[4, 3], base=float32[4, 3], left=float32[4, 2], right=float32[2, 3], gain=1.0)
    """

    base: torch.Tensor  # [M, N], dense or a wrapper
    left: torch.Tensor  # [M, rank]
    right: torch.Tensor  # [rank, N]
    gain: float = 1.0

    def outer_metadata(self) -> Outer:
        base, left, right = self.base.shape, self.left.shape, self.right.shape
        if Outer.are_known(self.base, self.left, self.right) and not (
            len(base) == len(left) == len(right) == 2 and left[1] == right[0] and base == (left[0], right[1])
        ):
            raise Outer.misfit(self, "base[M, N], left[M, rank] and right[rank, N]")
        return Outer.like(self.base, dtype=self.left.dtype)

    def to_plain(self) -> torch.Tensor:
        return plain(self.base).to(self.left.dtype) + self.gain * (self.left @ self.right)

    @classmethod
    def beside(cls, base: torch.Tensor, rank: int = 8, gain: float = 1.0) -> LoraWeight:
        """Returns a weight that is `base` until it is trained: `left` is zero, and `right` random."""
        rows, columns = base.shape
        right = torch.randn(rank, columns, dtype=base.dtype, device=base.device) / rank**0.5
        return cls(base.detach(), right.new_zeros(rows, rank), right, gain)


def plain(tensor: Any) -> torch.Tensor:
    """Returns the dense tensor that a tensor stands for."""
    return tensor.to_plain() if hasattr(tensor, "to_plain") else tensor  # type: ignore[no-any-return]


@LoraWeight.implements(aten.t.default)
def _(weight: LoraWeight) -> LoraWeight:
    return LoraWeight(weight.base.t(), weight.right.t(), weight.left.t(), weight.gain)


@LoraWeight.implements(aten.mm.default)
def _(a: torch.Tensor, b: torch.Tensor) -> Any:
    if not isinstance(b, LoraWeight) or isinstance(a, WrapperTensor):
        return NotImplemented
    return torch.addmm(a @ b.base, a @ b.left, b.right, alpha=b.gain)  # the thin way, which never makes the sum


@LoraWeight.implements(aten.addmm.default)
def _(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    if not isinstance(b, LoraWeight) or isinstance(a, WrapperTensor):
        return NotImplemented
    product = torch.addmm(bias, a, b.base, beta=beta, alpha=alpha)
    return torch.addmm(product, a @ b.left, b.right, alpha=alpha * b.gain)
