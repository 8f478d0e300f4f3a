"""Weights in eight bits of floating point against the dense tensors that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot import Float8Weight
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


def float8(seed: int = 0) -> Float8Weight:
    generator = torch.Generator().manual_seed(seed)
    return Float8Weight.from_float(torch.randn(8, 64, generator=generator))


@pytest.mark.long
def test_contract() -> None:
    assert verdicts(lambda: float8()) == set()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", rows())
def test_rounding_is_within_half_a_step(kind: str, dtype: torch.dtype) -> None:
    """Of three bits, so by 1 in 16; below the smallest normal number, 2 ** -6, steps are 2 ** -9 scales."""
    dense = rows(dtype)[kind]
    weight = Float8Weight.from_float(dense)
    assert (weight.shape, weight.dtype, weight.scale.shape) == (dense.shape, dtype, (len(dense), 1))
    eps = torch.finfo(dtype).eps
    off = (weight.to_plain().double() - dense.double()).abs()
    assert (off <= dense.double().abs() * (2**-4 + 4 * eps) + weight.scale.double() * 2**-10 * (1 + 4 * eps)).all()
    assert weight.scale.gt(0).all() and weight.codes.float().isfinite().all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_zero_stays_zero(dtype: torch.dtype) -> None:
    for dense in rows(dtype).values():
        dense[:, ::3] = 0
        assert not Float8Weight.from_float(dense).to_plain()[:, ::3].any()


@pytest.mark.parametrize("kind", rows())
def test_rounding_again_changes_no_code(kind: str) -> None:
    weight = Float8Weight.from_float(rows()[kind])
    again = weight.from_plain(weight.to_plain())
    same(again.codes, weight.codes)
    torch.testing.assert_close(again.scale, weight.scale, rtol=1e-6, atol=0)


def test_values_that_have_codes_are_exact() -> None:
    codes = torch.arange(128, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num(0)
    dense = torch.stack([codes, codes / 2, -codes * 4])
    weight = Float8Weight.from_float(dense)
    assert weight.to_plain().equal(dense)
    same(weight.from_plain(weight.to_plain()), weight)


def test_one_row() -> None:
    assert Float8Weight.from_float(torch.ones(6)).scale.shape == (1,)


def test_refusals() -> None:
    with pytest.raises(TypeError, match="floating point"):
        Float8Weight.from_float(torch.ones(2, 2, dtype=torch.int32))


@pytest.mark.parametrize("compiler", EACH_COMPILER)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_linear(compiler: str) -> None:
    check_linear(float8(), compiler)


def test_parts_are_loaded() -> None:
    new = torch.randn(8, 64)
    whole = Float8Weight.from_float(new)
    weight: Any = float8()
    for start in (0, 4):
        weight.narrow(0, start, 4).copy_(new.narrow(0, start, 4))
    same(weight, whole)
    weight = float8()
    for start in (0, 32):  # columns share the scale of their row, so the first are rounded twice
        weight.narrow(1, start, 32).copy_(new.narrow(1, start, 32))
    assert ((weight.to_plain() - new).abs() <= new.abs() * 2**-3 + weight.scale * 2**-8).all()


def test_saving(tmp_path: Path) -> None:
    check_saving(float8(), float8(1), tmp_path)


def test_a_dense_checkpoint_is_rounded() -> None:
    target, dense = layer(float8()), torch.randn(8, 64)
    target.load_state_dict({"weight": dense, "bias": torch.zeros(8)})
    same(target.weight.data, Float8Weight.from_float(dense))
