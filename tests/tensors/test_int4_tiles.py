"""Weights in four bits, in tiles, against those that lie row by row."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from subclass_aot import Int4Tiles, Int4Weight
from subclass_aot.base import _torch
from subclass_aot.engine.facts import source_of
from tests.tensors.checks import EACH_COMPILER, FLOATS, check_linear, check_saving, layer, same, verdicts


def tiles(seed: int = 0, tile: int = 16) -> Int4Tiles:
    generator = torch.Generator().manual_seed(seed)
    return Int4Tiles.from_float(torch.randn(32, 64, generator=generator), 16, tile)


@pytest.mark.long
def test_contract() -> None:
    assert verdicts(lambda: tiles()) == {(24, "new_zeros")}


@pytest.mark.parametrize("tile", [2, 16, 32])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_it_stands_for_what_an_int4_weight_does(tile: int, dtype: torch.dtype) -> None:
    dense = torch.randn(32, 64, dtype=torch.float64).to(dtype)
    weight, rows = Int4Tiles.from_float(dense, 16, tile), Int4Weight.from_float(dense, 16)
    assert (weight.shape, weight.dtype, weight.packed.nbytes) == (dense.shape, dtype, rows.packed.nbytes)
    steps = rows.scale.repeat_interleave(16, 1)
    assert ((weight.to_plain() - rows.to_plain()).abs() <= 16 * torch.finfo(dtype).eps * steps).all()
    assert weight.transposed().is_contiguous() and weight.transposed().t().equal(weight.to_plain())
    zero = Int4Tiles.from_float(dense.index_fill(1, torch.tensor([3]), 0), 16, tile)
    assert (zero.to_plain()[:, 3].abs() <= 8 * torch.finfo(dtype).eps * steps[:, 3]).all()


def test_the_layout_is_that_of_the_kernel() -> None:
    if not _torch.quantized.TILE:
        pytest.skip("this processor has no such kernel")
    dense = torch.randn(128, 64)
    codes = Int4Weight.from_float(dense, 32)
    plain = (codes.to_plain() / codes.scale.repeat_interleave(32, 1) + codes.zero.repeat_interleave(32, 1)).round()
    expected = torch._convert_weight_to_int4pack_for_cpu(plain.int(), 1)
    assert Int4Tiles.from_float(dense, 32).packed.flatten().equal(expected.flatten())


def test_a_compiled_file_is_for_the_layout_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product in it would take other tiles for its own."""
    here, function = source_of(Int4Tiles), Int4Tiles.__dict__["from_float"].__func__
    others = [tile for tile in (0, 32, 64) if tile != _torch.quantized.TILE]
    for tile in others:
        monkeypatch.setattr(function, "__defaults__", (64, tile, "min-max"))
        assert source_of(Int4Tiles) != here


@pytest.mark.parametrize("shape, group, tile", [((32, 6), 4, 16), ((24, 8), 4, 16), ((6,), 2, 2)])
def test_refusals(shape: tuple[int, ...], group: int, tile: int) -> None:
    with pytest.raises(ValueError, match=r"of \(.*\) cannot be cut into (groups of 4|tiles of 16|groups of 2)"):
        Int4Tiles.from_float(torch.ones(shape), group, tile)


@pytest.mark.parametrize("compiler", EACH_COMPILER)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_linear(compiler: str) -> None:
    check_linear(tiles(), compiler)


def test_saving(tmp_path: Path) -> None:
    check_saving(tiles(), tiles(1), tmp_path)


def test_a_dense_checkpoint_is_rounded() -> None:
    target, dense = layer(tiles()), torch.randn(32, 64)
    target.load_state_dict({"weight": dense, "bias": torch.zeros(32)})
    same(target.weight.data, Int4Tiles.from_float(dense, 16, 16))
    with torch.no_grad():
        target.weight.narrow(0, 0, 5).copy_(torch.ones(5, 64))
    assert target.weight.to_plain()[:5].eq(1).all()
