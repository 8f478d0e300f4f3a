"""A weight in eight bits of floating point, with a scale for each row.

The format E4M3 is that of "FP8 Formats for Deep Learning" (Micikevicius et al., 2022, arXiv:2209.05433).
"""

from __future__ import annotations

import torch

from subclass_aot.kit.wrapper import Outer, WrapperTensor

FORMAT = torch.float8_e4m3fn


class Float8Weight(WrapperTensor, views="broadcast"):
    """A `[M, N]` weight that stands for `codes * scale`.

    >>> Float8Weight.from_float(torch.tensor([[1.0, -2.0], [0.5, 0.25]]))
    Float8Weight(float32[2, 2], codes=float8_e4m3fn[2, 2], scale=float32[2, 1])
    """

    codes: torch.Tensor  # float8[M, N]
    scale: torch.Tensor  # float[M, 1]

    def outer_metadata(self) -> Outer:
        if not Outer.lines_up(self.codes, self.scale):
            raise Outer.misfit(self, "codes[M, N] and scale[M or 1, N or 1]")
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.codes.to(self.scale.dtype) * self.scale

    def from_plain(self, plain: torch.Tensor) -> Float8Weight:
        """Returns `plain` in as many scales, along the same dims, as this weight has."""
        dims = [dim for dim in range(plain.dim()) if self.scale.shape[dim] == 1]
        plain = plain.to(self.scale.dtype)
        largest = plain.abs().amax(dims, keepdim=True) if dims else plain.abs()
        most = torch.finfo(FORMAT).max
        scale = largest.clamp(min=torch.finfo(plain.dtype).tiny * most) / most
        return Float8Weight((plain / scale).clamp(-most, most).to(FORMAT), scale)

    @classmethod
    def from_float(cls, weight: torch.Tensor) -> Float8Weight:
        """Rounds a float weight `[M, N]` to the values of E4M3, scaled for each row."""
        like = cls(weight.new_empty(weight.shape, dtype=FORMAT), weight.new_empty(*weight.shape[:-1], 1))
        return like.from_plain(weight.detach())
