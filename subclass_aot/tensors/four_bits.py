"""Dense weights of those in four bits: by a kernel of the accelerator where there is one, or by operators of torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from subclass_aot.base._torch import quantized
from subclass_aot.tensors.products import dense, writes_out

_TWO = {2: torch.int32, 4: torch.int64, 8: torch.complex128}
"""By the bytes of a float, a dtype that holds two."""


def tiles_to_dense(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Returns `(codes - 8) * scale + middle`, transposed.

    Args:
        packed: `uint8[M / tile, N, tile / 2]`; the low bits of a byte are of the first half of the rows of a tile.
        scales: `[N / group, M, 2]`: scale and middle.

    Returns:
        `[N, M]`, contiguous.
    """
    return dense(quantized.int4_dense, packed, 2 * packed.shape[2], scales)


def levels_to_dense(
    packed: torch.Tensor, codes: torch.Tensor, step: torch.Tensor, center: torch.Tensor, levels: Sequence[float]
) -> torch.Tensor:
    """Returns `levels[packed] * (codes * step + center)`.

    Args:
        packed: `uint8[..., M, N / 2]`; the even column of a pair is in the low bits.
        codes: `int8[..., M, blocks]`, of the scales.
        step: `[..., M, 1]`.
        center: `[..., M, 1]`.
        levels: Sixteen.

    Returns:
        `[..., M, N]`, contiguous.
    """
    if packed.dim() > 2:  # the rows of several weights are rows of one
        rows = codes.shape[:-1]
        packed, codes, step, center = (
            field.expand(*rows, field.shape[-1]).flatten(0, -2) for field in (packed, codes, step, center)
        )
        found: torch.Tensor = levels_to_dense(packed, codes, step, center, levels).unflatten(0, rows)
        return found
    block = 2 * packed.shape[1] // codes.shape[1]
    return dense(quantized.nf4_dense, packed, block, codes, step, center, levels)


@writes_out(quantized.int4_dense)
def _tiles(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    pairs, (groups, rows, _) = packed.transpose(0, 1), scales.shape
    codes = torch.cat((pairs & 15, pairs >> 4), -1).view(groups, -1, rows).to(scales.dtype)
    scale, middle = torch.stack(scales.unbind(-1)).unsqueeze(2)  # apart, so that kernels read them in a row
    return torch.addcmul(middle, codes.sub_(8), scale).flatten(0, 1)


@writes_out(quantized.nf4_dense)
def _levels(
    packed: torch.Tensor, codes: torch.Tensor, step: torch.Tensor, center: torch.Tensor, levels: Sequence[float]
) -> torch.Tensor:
    scales, dtype = codes.to(step.dtype) * step + center, step.dtype
    level = torch.tensor(levels, dtype=dtype, device=packed.device)
    pairs = torch.stack((level.repeat(16), level.repeat_interleave(16)), -1).view(_TWO[dtype.itemsize])
    both = pairs.flatten().index_select(0, packed.flatten().int()).view(dtype)  # a byte looks up two at once
    rows, half = packed.shape
    blocks = both.view(rows, 2 * half).unflatten(1, (scales.shape[1], -1))
    return blocks.mul_(scales[..., None]).flatten(1)  # type: ignore[no-any-return]
