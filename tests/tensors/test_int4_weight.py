"""Weights in four bits against the dense tensors that they stand for."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot import Int4Weight
from subclass_aot.tensors.int4_weight import packed, unpacked
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


def int4(seed: int = 0) -> Int4Weight:
    generator = torch.Generator().manual_seed(seed)
    return Int4Weight.from_float(torch.randn(8, 64, generator=generator), group=16)


@pytest.mark.long
def test_contract() -> None:
    assert verdicts(lambda: int4()) == set()


def test_packing() -> None:
    codes = torch.arange(16, dtype=torch.uint8).repeat(2, 2)
    assert packed(codes).shape == (2, 16) and packed(codes)[0, 0] == 0 | 1 << 4
    assert unpacked(packed(codes)).equal(codes)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", rows())
def test_rounding_is_within_half_a_step(kind: str, dtype: torch.dtype) -> None:
    dense = rows(dtype)[kind]
    weight = Int4Weight.from_float(dense, group=16)
    assert (weight.shape, weight.dtype, weight.packed.shape) == (dense.shape, dtype, (len(dense), 32))
    info = torch.finfo(dtype)
    groups = dense.double().unflatten(1, (4, 16))
    steps = groups.amax(-1).clamp(min=0) / 15 - groups.amin(-1).clamp(max=0) / 15
    steps = steps.clamp(min=info.smallest_normal)[..., None]
    off = (weight.to_plain().double().unflatten(1, (4, 16)) - groups).abs()
    assert (off <= steps * (0.5 + 40 * info.eps)).all()  # a code up to 15 is rounded in x / scale, in + zero, and back


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_zero_stays_zero(dtype: torch.dtype) -> None:
    for dense in rows(dtype).values():
        dense[:, ::3] = 0
        assert not Int4Weight.from_float(dense, group=16).to_plain()[:, ::3].any()


@pytest.mark.parametrize("kind", rows())
def test_rounding_again_changes_no_code(kind: str) -> None:
    weight = Int4Weight.from_float(rows()[kind], group=16)
    again = weight.from_plain(weight.to_plain())
    assert again.packed.equal(weight.packed) and again.zero.equal(weight.zero)
    torch.testing.assert_close(again.scale, weight.scale, rtol=1e-6, atol=0)


def test_values_that_have_codes_are_exact() -> None:
    dense = torch.arange(-7.0, 9.0).repeat(4, 4)
    weight = Int4Weight.from_float(dense, group=16)
    assert weight.to_plain().equal(dense)
    same(weight.from_plain(weight.to_plain()), weight)


@pytest.mark.parametrize("shape, group", [((4, 6), 4), ((4, 6), 3), ((6,), 2), ((2, 4, 6), 4)])
def test_refusals(shape: tuple[int, ...], group: int) -> None:
    with pytest.raises(ValueError, match=rf"rows of a weight of \(.*\) cannot be cut into groups of {group}"):
        Int4Weight.from_float(torch.ones(shape), group)


@pytest.mark.parametrize("compiler", EACH_COMPILER)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_linear(compiler: str) -> None:
    check_linear(int4(), compiler)


def test_parts_are_loaded() -> None:
    """As by tensor-parallel loaders: each rank writes its part, of rows, of whole groups, or of parts of groups."""
    new = torch.randn(8, 64)
    whole = Int4Weight.from_float(new, group=16)
    for dim, size in ((0, 4), (1, 32)):
        weight: Any = int4()
        for start in range(0, weight.shape[dim], size):
            part = weight.narrow(dim, start, size)
            assert type(part) is Int4Weight
            part.copy_(new.narrow(dim, start, size))
        same(weight, whole)
    weight, before = int4(), int4().to_plain()
    weight.narrow(1, 3, 2).copy_(new[:, 3:5])
    assert weight.packed[:, 8:].equal(int4().packed[:, 8:])  # the whole is rounded again: scales to their last bit
    torch.testing.assert_close(weight.to_plain()[:, 16:], before[:, 16:], rtol=1e-6, atol=0)
    steps = weight.scale[:, :1]
    assert ((weight.to_plain()[:, 3:5] - new[:, 3:5]).abs() <= steps * 0.501).all()
    assert ((weight.to_plain() - before)[:, :3].abs() <= steps * 0.501).all()


def test_saving(tmp_path: Path) -> None:
    check_saving(int4(), int4(1), tmp_path)


def test_a_dense_checkpoint_is_rounded() -> None:
    target, dense = layer(int4()), torch.randn(8, 64)
    target.load_state_dict({"weight": dense, "bias": torch.zeros(8)})
    same(target.weight.data, Int4Weight.from_float(dense, group=16))
    half = copy.deepcopy(target).to(torch.bfloat16).weight
    assert (half.dtype, half.packed.dtype, type(half.data)) == (torch.bfloat16, torch.uint8, Int4Weight)
