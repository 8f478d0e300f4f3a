"""A weight in NormalFloat4: codes for 16 quantiles of the normal distribution, and scales that are quantized, too.

From QLoRA (Dettmers et al., 2023, arXiv:2305.14314, section 3 and appendix E). There, scales are quantized 256 at a
time, less their mean; here, those of a row together, less their middle, so that rounding again changes nothing.
"""

from __future__ import annotations

import torch

from subclass_aot.kit.wrapper import Outer, ViewOf, WrapperTensor
from subclass_aot.tensors.four_bits import levels_to_dense
from subclass_aot.tensors.int4_weight import packed
from subclass_aot.tensors.int8_weight import quantize

LEVELS = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


class Scales(WrapperTensor, views="broadcast"):
    """The scales of a weight, for each row as the middle of them and the differences from it in eight bits."""

    codes: torch.Tensor  # int8[M, blocks]
    step: torch.Tensor  # float[M, 1]
    center: torch.Tensor  # float[M, 1]: between the least and the largest

    def outer_metadata(self) -> Outer:
        if not Outer.lines_up(self.codes, self.step, self.center):
            raise Outer.misfit(self, "codes[M, blocks], and step and center[M or 1, blocks or 1]")
        return Outer.like(self.codes, dtype=self.step.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.codes.to(self.step.dtype) * self.step + self.center

    def from_plain(self, plain: torch.Tensor) -> Scales:
        shared = [dim for dim in range(plain.dim()) if self.step.shape[dim] == 1]
        center = plain.amax(shared, keepdim=True) / 2 + plain.amin(shared, keepdim=True) / 2
        return Scales(*quantize(plain - center, shared), center)


class NF4Weight(WrapperTensor, views="blocks"):
    """A `[M, N]` weight that stands for `LEVELS[codes] * scales`, with a scale for each block of a row; or several.

    >>> weight = NF4Weight.from_float(torch.randn(8, 256))
    >>> sum(t.nbytes for t in (weight.packed, weight.scales.codes, weight.scales.step, weight.scales.center))
    1120
    """

    accepts = (ViewOf,)  # a product reads the codes of the whole

    packed: torch.Tensor  # uint8[M, N / 2]
    scales: Scales  # float[M, N / block]

    def outer_metadata(self) -> Outer:
        packed, scales = self.packed.shape, self.scales.shape
        if Outer.are_known(self.packed, self.scales) and not (
            len(packed) >= 2
            and packed[:-1] == scales[:-1]
            and (2 * packed[-1] % scales[-1] == 0 if scales[-1] else not packed[-1])
        ):
            raise Outer.misfit(self, "packed[M, N / 2] and scales[M, N / block]")
        return Outer.like(self.packed, size=(*packed[:-1], 2 * packed[-1]), dtype=self.scales.dtype)

    def to_plain(self) -> torch.Tensor:
        return levels_to_dense(self.packed, self.scales.codes, self.scales.step, self.scales.center, LEVELS)

    def from_plain(self, plain: torch.Tensor) -> NF4Weight:
        blocks = plain.to(self.scales.dtype).unflatten(-1, (self.scales.shape[-1], -1))
        scales = self.scales.from_plain(blocks.abs().amax(-1))
        levels = torch.tensor(LEVELS, dtype=plain.dtype, device=plain.device)
        between = (levels[1:] + levels[:-1]) / 2
        smallest = torch.finfo(plain.dtype).tiny
        shares = blocks / scales.to_plain().clamp(min=smallest)[..., None]
        codes = torch.bucketize(shares.contiguous(), between)  # which copies another layout with a warning
        return NF4Weight(packed(codes.flatten(-2).to(torch.uint8)), scales)

    @classmethod
    def from_float(cls, weight: torch.Tensor, block: int = 64) -> NF4Weight:
        """Rounds float weights `[..., M, N]`; `block` is even and divides N."""
        if weight.dim() < 2 or block % 2 or weight.shape[-1] % block:
            raise ValueError(f"the rows of a weight of {tuple(weight.shape)} cannot be cut into blocks of {block}")
        *rows, columns = weight.shape
        codes = weight.new_empty(*rows, columns // block, dtype=torch.int8)
        scales = Scales(codes, weight.new_empty(*rows, 1), weight.new_empty(*rows, 1))
        return cls(weight.new_empty(*rows, columns // 2, dtype=torch.uint8), scales).from_plain(weight.detach())
