"""A weight in four bits: two codes in a byte, with a scale and a zero point for each group of a row.

Groups along the rows, as in AWQ (Lin et al., 2023, arXiv:2306.00978) and GPTQ (Frantar et al., 2022, arXiv:2210.17323).
"""

from __future__ import annotations

import torch

from subclass_aot.kit.wrapper import Outer, ViewOf, WrapperTensor
from subclass_aot.tensors.quantizing.scales import Scales, codes_of, scales_of


class Int4Weight(WrapperTensor, views="blocks"):
    """A `[M, N]` weight that stands for `(codes - zero) * scale`, codes being 0 to 15; or several, as of experts.

    >>> weight = Int4Weight.from_float(torch.tensor([[1.0, -2.0, 0.5, 0.0]]), group=4)
    >>> weight
    Int4Weight(float32[1, 4], packed=uint8[1, 2], scale=float32[1, 1], zero=float32[1, 1])
    >>> weight.to_plain()
    tensor([[ 1.0000, -2.0000,  0.4000,  0.0000]])
    """

    accepts = (ViewOf,)  # a product reads the codes of the whole

    packed: torch.Tensor  # uint8[M, N / 2]; the even column of a pair is in the low bits
    scale: torch.Tensor  # float[M, N / group]
    zero: torch.Tensor  # float[M, N / group]: the code of 0.0

    def outer_metadata(self) -> Outer:
        packed, scale, zero = self.packed.shape, self.scale.shape, self.zero.shape
        if Outer.are_known(self.packed, self.scale, self.zero) and not (
            len(packed) >= 2
            and scale == zero
            and packed[:-1] == scale[:-1]
            and (2 * packed[-1] % scale[-1] == 0 if scale[-1] else not packed[-1])
        ):
            raise Outer.misfit(self, "packed[M, N / 2], and scale and zero[M, N / group]")
        return Outer.like(self.packed, size=(*packed[:-1], 2 * packed[-1]), dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        groups = self.scale.shape[-1]
        codes = unpacked(self.packed).to(self.scale.dtype).unflatten(-1, (groups, -1))
        return ((codes - self.zero[..., None]) * self.scale[..., None]).flatten(-2)  # type: ignore[no-any-return]

    def from_plain(self, plain: torch.Tensor) -> Int4Weight:
        """Returns `plain` in as many groups as this weight has."""
        return _rounded(plain.to(self.scale.dtype), self.scale.shape[-1], "min-max")

    @classmethod
    def from_float(cls, weight: torch.Tensor, group: int = 64, scales: Scales = "min-max") -> Int4Weight:
        """Rounds float weights `[..., M, N]` to 16 levels for each group of a row.

        Args:
            weight: The weights.
            group: How many elements of a row share a scale; it is even and divides N.
            scales: "min-max", of which 0.0 stays 0.0; or "half-quadratic", which moves zero points so that errors are
                less without data for it, as HQQ does, and takes some forty times as long.
        """
        if weight.dim() < 2 or group % 2 or weight.shape[-1] % group:
            raise ValueError(f"the rows of a weight of {tuple(weight.shape)} cannot be cut into groups of {group}")
        return _rounded(weight.detach(), weight.shape[-1] // group, scales)

    @classmethod
    def of_codes(cls, codes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> Int4Weight:
        """Returns the weight of codes `[..., M, N]`, which are 0 to 15, and N is even."""
        return cls(packed(codes.to(torch.uint8)), scale, zero)


def _rounded(plain: torch.Tensor, groups: int, scales: Scales) -> Int4Weight:
    grouped = plain.unflatten(-1, (groups, -1))
    scale, zero = scales_of(grouped, scales)
    return Int4Weight.of_codes(codes_of(grouped, scale, zero).flatten(-2), scale, zero)


def packed(codes: torch.Tensor) -> torch.Tensor:
    """Returns two codes of four bits in a byte."""
    return codes[..., ::2] | codes[..., 1::2] << 4


def unpacked(pairs: torch.Tensor) -> torch.Tensor:
    """Returns the codes again."""
    return torch.stack([pairs & 15, pairs >> 4], -1).flatten(-2)
