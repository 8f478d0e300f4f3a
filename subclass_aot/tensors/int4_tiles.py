"""A weight in four bits, packed as torch's own product on CPUs reads it."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.base._torch import quantized
from subclass_aot.kit.wrapper import Outer, ViewOf, WrapperTensor
from subclass_aot.tensors.four_bits import tiles_to_dense
from subclass_aot.tensors.int4_weight import Int4Weight, unpacked
from subclass_aot.tensors.int8_weight import plus
from subclass_aot.tensors.quantizing.scales import Scales

aten: Any = torch.ops.aten

FEW = 16
"""As many rows of the other operand are a product whose time goes into reading the codes: see `Int8Weight`."""


class Int4Tiles(WrapperTensor):
    """A `[M, N]` weight that stands for `(codes - 8) * scale + middle`, codes being 0 to 15.

    What `Int4Weight` holds, in tiles of 64 rows, or of 32 where the processor has no AVX-512.

    >>> Int4Tiles.from_float(torch.randn(128, 64), group=32, tile=64)
    Int4Tiles(float32[128, 64], packed=uint8[2, 64, 32], scales=float32[2, 128, 2])
    """

    accepts = (ViewOf,)

    packed: torch.Tensor  # uint8[M / tile, N, tile / 2]; the low bits of a byte are of the first half of the rows
    scales: torch.Tensor  # float[N / group, M, 2]: scale and middle

    def outer_metadata(self) -> Outer:
        packed, scales = self.packed.shape, self.scales.shape
        if Outer.are_known(self.packed, self.scales) and not (
            len(packed) == len(scales) == 3
            and 2 * packed[0] * packed[2] == scales[1]
            and scales[2] == 2
            and (packed[1] % scales[0] == 0 if scales[0] else not packed[1])
        ):
            raise Outer.misfit(self, "packed[M / tile, N, tile / 2] and scales[N / group, M, 2]")
        return Outer.like(self.packed, size=(scales[1], packed[1]), dtype=self.scales.dtype)

    def transposed(self) -> torch.Tensor:
        """Returns what the transpose stands for, as the codes lie: `[N, M]`, contiguous."""
        return tiles_to_dense(self.packed, self.scales)

    def to_plain(self) -> torch.Tensor:
        return self.transposed().t().contiguous()

    def from_plain(self, plain: torch.Tensor) -> Int4Tiles:
        """Returns `plain` in groups and tiles as this weight has."""
        group, tile = self.shape[1] // self.scales.shape[0], 2 * self.packed.shape[2]
        return Int4Tiles.from_float(plain.to(self.scales.dtype), group, tile)

    @classmethod
    def from_float(
        cls, weight: torch.Tensor, group: int = 64, tile: int = quantized.TILE, scales: Scales = "min-max"
    ) -> Int4Tiles:
        """Rounds a float weight `[M, N]` as `Int4Weight` does; `tile`, that of this machine or 64, divides M."""
        return cls.of(Int4Weight.from_float(weight, group, scales), tile)

    @classmethod
    def of(cls, weight: Int4Weight, tile: int = quantized.TILE) -> Int4Tiles:
        """Returns the same codes and scales in tiles."""
        tile = tile or 64  # what a class has by default is part of its hash: compiled files are for one layout
        if weight.dim() != 2 or weight.shape[0] % tile:
            raise ValueError(f"a weight of {tuple(weight.shape)} cannot be cut into tiles of {tile} rows")
        halves = unpacked(weight.packed).unflatten(0, (-1, 2, tile // 2)).transpose(2, 3)
        scales = torch.stack((weight.scale, (8 - weight.zero) * weight.scale), -1).transpose(0, 1)
        return cls((halves[:, 0] | halves[:, 1] << 4).contiguous(), scales.contiguous())


@Int4Tiles.implements(aten.mm.default)
def _(a: torch.Tensor, b: torch.Tensor) -> Any:
    weight = b.base if isinstance(b, ViewOf) and b.is_transposed else None
    if not isinstance(weight, Int4Tiles) or isinstance(a, WrapperTensor):
        return NotImplemented
    if not quantized.takes_int4(a, weight.packed, weight.scales) or not quantized.has_few_rows(a, FEW):
        return a @ weight.transposed()
    rows, columns = weight.shape
    codes, group = weight.packed.view(rows, columns // 2), columns // weight.scales.shape[0]
    return quantized.int4_mm(a.contiguous(), codes, group, weight.scales)


@Int4Tiles.implements(aten.addmm.default)
def _(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    if not isinstance(b, ViewOf) or isinstance(bias, WrapperTensor) or isinstance(a, WrapperTensor):
        return NotImplemented
    return plus(bias, a @ b, beta, alpha)
