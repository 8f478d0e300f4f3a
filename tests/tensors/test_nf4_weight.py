"""Weights in NormalFloat4 against the dense tensors that they stand for."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot import NF4Weight
from subclass_aot.tensors.nf4_weight import LEVELS, Scales
from tests.tensors.checks import (
    EACH_COMPILER,
    FLOATS,
    check_linear,
    check_saving,
    layer,
    rows,
    same,
    verdicts,
)

WIDEST = max(high - low for low, high in zip(LEVELS, LEVELS[1:], strict=False)) / 2
"""Half of the widest gap between levels."""


def nf4(seed: int = 0) -> NF4Weight:
    generator = torch.Generator().manual_seed(seed)
    return NF4Weight.from_float(torch.randn(8, 64, generator=generator), block=16)


def scales(seed: int = 0) -> Scales:
    return nf4(seed).scales


@pytest.mark.long
def test_contract() -> None:
    assert verdicts(lambda: nf4()) == {(42, "export")}


@pytest.mark.long
def test_contract_of_scales() -> None:
    assert verdicts(lambda: scales()) == set()


def test_levels_are_quantiles_of_the_normal_distribution() -> None:
    """Appendix E: the means of neighbours among 9 quantiles for values from 0, and 8 for those to 0."""
    offset = (1 - 1 / 32 + 1 - 1 / 30) / 2
    normal = statistics.NormalDist()

    def half(count: int) -> list[float]:
        return [normal.inv_cdf(offset + (0.5 - offset) * i / count) for i in range(count)]

    found = sorted([*half(8), 0.0, *(-value for value in half(7))])
    largest = max(found)
    assert len(LEVELS) == 16
    assert all(math.isclose(level, value / largest, abs_tol=1e-4) for level, value in zip(LEVELS, found, strict=True))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", rows())
def test_rounding_is_within_half_a_gap(kind: str, dtype: torch.dtype) -> None:
    """Half of the widest gap in units of the scale; what is beyond the scale is off by what the scale is off."""
    dense = rows(dtype)[kind]
    weight = NF4Weight.from_float(dense, block=16)
    assert (weight.shape, weight.dtype, weight.packed.shape) == (dense.shape, dtype, (len(dense), 32))
    blocks, eps = dense.double().unflatten(1, (4, 16)), torch.finfo(dtype).eps
    largest = blocks.abs().amax(-1)
    most = largest.amax(1, keepdim=True)
    scale_off = weight.scales.step.double() / 2 + 8 * eps * most  # middle, difference, code, product, sum: rounded
    assert ((weight.scales.to_plain().double() - largest).abs() <= scale_off).all()
    allowed = torch.maximum((largest + scale_off) * (WIDEST + 4 * eps), scale_off)
    off = (weight.to_plain().double().unflatten(1, (4, 16)) - blocks).abs()
    assert (off <= allowed[..., None]).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_zero_stays_zero(dtype: torch.dtype) -> None:
    for dense in rows(dtype).values():
        dense[:, ::3] = 0
        assert not NF4Weight.from_float(dense, block=16).to_plain()[:, ::3].any()


def test_values_that_have_codes_are_exact() -> None:
    dense = torch.tensor(LEVELS).repeat(4, 4) * torch.tensor([1.0, 0.5, 2.0, 4.0])[:, None]
    weight = NF4Weight.from_float(dense, block=16)
    assert weight.to_plain().equal(dense)
    same(weight.from_plain(weight.to_plain()), weight)


@pytest.mark.parametrize("kind", ["ordinary", "zero", "tiny and huge", "largest", "positive", "one value"])
def test_rounding_again_changes_no_code(kind: str) -> None:
    """But for rows whose scales differ by less than the smallest step, or by so much that some are rounded to half."""
    weight = NF4Weight.from_float(rows()[kind], block=16)
    again = weight.from_plain(weight.to_plain())
    assert again.packed.equal(weight.packed) and again.scales.codes.equal(weight.scales.codes)
    torch.testing.assert_close(again.to_plain(), weight.to_plain(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("shape, block", [((4, 6), 4), ((4, 6), 3), ((6,), 2), ((2, 4, 6), 2)])
def test_refusals(shape: tuple[int, ...], block: int) -> None:
    with pytest.raises(ValueError, match=rf"rows of a weight of \(.*\) cannot be cut into blocks of {block}"):
        NF4Weight.from_float(torch.ones(shape), block)


@pytest.mark.parametrize("compiler", EACH_COMPILER)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_linear(compiler: str) -> None:
    check_linear(nf4(), compiler)


def test_parts_are_loaded() -> None:
    """Rows at a time give the whole. Blocks of a row share the step of their scales, so these are rounded again."""
    new = torch.randn(8, 64)
    whole = NF4Weight.from_float(new, block=16)
    weight: Any = nf4()
    for start in (0, 4):
        weight.narrow(0, start, 4).copy_(new.narrow(0, start, 4))
    same(weight, whole)
    weight = nf4()
    for start in (0, 32):
        weight.narrow(1, start, 32).copy_(new.narrow(1, start, 32))
    first_loss = whole.scales.to_plain().amax() * WIDEST
    assert (weight.to_plain() - new).abs().max() <= 2 * (first_loss + weight.scales.step.max())


def test_saving(tmp_path: Path) -> None:
    check_saving(nf4(), nf4(1), tmp_path)


def test_a_dense_checkpoint_is_rounded() -> None:
    target, dense = layer(nf4()), torch.randn(8, 64)
    target.load_state_dict({"weight": dense, "bias": torch.zeros(8)})
    same(target.weight.data, NF4Weight.from_float(dense, block=16))
