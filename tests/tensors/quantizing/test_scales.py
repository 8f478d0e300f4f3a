"""Scales of groups: half-quadratic ones against the published steps, one number at a time, and against all others."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from subclass_aot.files.transformers import QuantizationConfig
from subclass_aot.tensors import Int4Tiles, Int4Weight, quantize_
from subclass_aot.tensors.quantizing.scales import scales_of
from tests.tensors.checks import FLOATS, check_linear, rows, same

GROUP = 16


def heavy(*size: int, seed: int = 0) -> torch.Tensor:
    """Weights with outliers: Student's t with three degrees of freedom."""
    torch.manual_seed(seed)
    return torch.distributions.StudentT(torch.tensor(3.0, dtype=torch.float64)).sample(torch.Size(size)) / 50


def errors(weight: Any, dense: torch.Tensor) -> torch.Tensor:
    """For each group the sum that is to be small, in units of its step."""
    steps = weight.scale.double()[..., None]
    off = (weight.to_plain().double() - dense.double()).unflatten(-1, (weight.scale.shape[-1], -1))
    return (off / steps).abs().pow(0.7).sum(-1)


def by_the_book(group: list[float], steps: int = 20) -> float:
    """The zero point of a group, by the published steps on one number at a time, in units of the step."""
    low, high = min(*group, 0.0), max(*group, 0.0)
    scale = (high - low) / 15
    x = [value / scale for value in group]
    zero, beta, found = float(round(-low / scale)), 10.0, []
    for _ in range(steps):
        codes = [min(max(round(value + zero), 0), 15) for value in x]
        off = [value - (code - zero) for value, code in zip(x, codes, strict=True)]
        found.append((math.fsum(abs(e) ** 0.7 for e in off), zero))
        split = [math.copysign(max(abs(e) - abs(e) ** -0.3 / beta, 0), e) if e else 0.0 for e in off]
        zero = math.fsum(c - (v - e) for c, v, e in zip(codes, x, split, strict=True)) / len(x)
        beta *= 1.01
    return min(found)[1]


def test_as_published() -> None:
    dense = heavy(6, 2, GROUP)
    _, zero = scales_of(dense, "half-quadratic")
    expected = [[by_the_book(group) for group in row] for row in dense.tolist()]
    torch.testing.assert_close(zero, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    assert (zero != zero.round()).float().mean() > 0.5  # they are moved


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", rows())
def test_no_group_is_worse(kind: str, dtype: torch.dtype) -> None:
    dense = rows(dtype)[kind]
    plain, moved = (Int4Weight.from_float(dense, GROUP, scales) for scales in ("min-max", "half-quadratic"))  # type: ignore[arg-type]
    assert moved.scale.equal(plain.scale) and moved.dtype == dtype
    before, after = errors(plain, dense), errors(moved, dense)
    assert (after <= before * (1 + 1e-5) + 1e-5).all()  # sums are in float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_better_where_there_are_outliers(dtype: torch.dtype) -> None:
    """As near to the best zero point of all as half of the way from that of plain rounding, and in squares, too."""
    dense = heavy(32, 256).to(dtype)
    plain, moved = Int4Weight.from_float(dense), Int4Weight.from_float(dense, scales="half-quadratic")
    tried = torch.stack([
        errors(Int4Weight(*_at(dense.double(), plain.scale.double(), plain.zero.double() + shift)), dense)
        for shift in torch.arange(-1, 1, 1 / 64).tolist()
    ]).amin(0)  # fmt: skip
    before, after = (errors(weight, dense).sum() for weight in (plain, moved))
    assert after < (before + tried.sum()) / 2
    assert (moved.to_plain() - dense).norm() < 0.98 * (plain.to_plain() - dense).norm()


def _at(dense: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The fields of the weight with those scales and zero points."""
    codes = (dense.unflatten(-1, (scale.shape[-1], -1)) / scale[..., None] + zero[..., None]).round().clamp(0, 15)
    pairs = codes.flatten(-2).to(torch.uint8)
    return pairs[..., ::2] | pairs[..., 1::2] << 4, scale, zero


def test_groups_that_are_not_finite_are_as_with_plain_rounding() -> None:
    dense = heavy(3, 2 * GROUP).float()
    dense[0, 3], dense[1, 4] = math.inf, math.nan
    plain, moved = (Int4Weight.from_float(dense, GROUP, scales).to_plain() for scales in ("min-max", "half-quadratic"))  # type: ignore[arg-type]
    assert moved[:2, :GROUP].isnan().equal(plain[:2, :GROUP].isnan()) and moved[:2, :GROUP].isnan().any()
    assert moved[2].isfinite().all() and moved[:, GROUP:].isfinite().all()


def test_several_weights_are_as_each_alone() -> None:
    dense = heavy(3, 4, 2 * GROUP).float()
    whole = Int4Weight.from_float(dense, GROUP, "half-quadratic")
    each = [Int4Weight.from_float(one, GROUP, "half-quadratic").to_plain() for one in dense]
    assert whole.to_plain().equal(torch.stack(each))


def test_tiles_have_the_same_codes() -> None:
    dense = heavy(64, 64).float()
    found = Int4Tiles.from_float(dense, 32, 32, "half-quadratic")
    same(found, Int4Tiles.of(Int4Weight.from_float(dense, 32, "half-quadratic"), 32))
    torch.testing.assert_close(found.to_plain(), Int4Weight.from_float(dense, 32, "half-quadratic").to_plain())
    assert not found.to_plain().equal(Int4Tiles.from_float(dense, 32, 32).to_plain())


def test_products() -> None:
    check_linear(Int4Weight.from_float(heavy(8, 64).float(), GROUP, "half-quadratic"), "aot_compile")


def test_a_model(tmp_path: Path) -> None:
    """By `quantize_` and by a configuration of `transformers`, which knows the sizes before there are data."""
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, vocab_size=64
    )
    dense: Any = transformers.LlamaForCausalLM(config).eval()
    for layer in dense.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.data = heavy(*layer.weight.shape).float()
    dense.save_pretrained(tmp_path / "dense")
    options = {"group": 32, "scales": "half-quadratic"}
    how = QuantizationConfig({"class": "Int4Weight", **options})
    model: Any = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "dense", quantization_config=how)
    model.save_pretrained(tmp_path / "quantized")
    again: Any = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "quantized")
    quantize_(dense, functools.partial(Int4Weight.from_float, **options), "model.*")  # type: ignore[arg-type]
    for name, parameter in dense.named_parameters():
        same(model.get_parameter(name).data, parameter.data)
        same(again.get_parameter(name).data, parameter.data)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="scales='best' is no way to find scales; there are 'min-max', 'half-q"):
        Int4Weight.from_float(heavy(2, 64), scales="best")  # type: ignore[arg-type]
