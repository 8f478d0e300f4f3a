"""Dense weights of those in four bits, against a loop over codes. `tests/native/test_dense.py` compares the kernels."""

from __future__ import annotations

import pytest
import torch

from subclass_aot.tensors.four_bits import levels_to_dense, tiles_to_dense
from tests.tensors.checks import FLOATS


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_tiles(dtype: torch.dtype) -> None:
    tile, rows, columns, group = 4, 8, 6, 3
    packed = torch.randint(0, 256, (rows // tile, columns, tile // 2), dtype=torch.uint8)
    scales = torch.randn(columns // group, rows, 2).to(dtype)
    dense = tiles_to_dense(packed, scales)
    assert dense.is_contiguous() and dense.shape == (columns, rows)
    for n in range(columns):
        for m in range(rows):
            byte = packed[m // tile, n, m % (tile // 2)].item()
            code = byte & 15 if m % tile < tile // 2 else byte >> 4
            scale, middle = scales[n // group, m].double()
            torch.testing.assert_close(dense[n, m], ((code - 8) * scale + middle).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_levels(dtype: torch.dtype) -> None:
    rows, columns, blocks = 3, 8, 2
    levels = torch.linspace(-1, 1, 16).to(dtype)
    packed = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8)
    codes = torch.randint(-128, 128, (rows, blocks), dtype=torch.int8)
    step, center = torch.rand(2, rows, 1).to(dtype)
    dense = levels_to_dense(packed, codes, step, center, levels.tolist())
    assert dense.is_contiguous() and dense.shape == (rows, columns)
    for m in range(rows):
        for n in range(columns):
            byte = packed[m, n // 2].item()
            scale = codes[m, n // (columns // blocks)].to(dtype) * step[m, 0] + center[m, 0]
            torch.testing.assert_close(dense[m, n], levels[byte >> 4 if n % 2 else byte & 15] * scale)
