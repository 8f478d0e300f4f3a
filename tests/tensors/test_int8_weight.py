"""Weights in eight bits against the dense tensors they stand for."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.tensors import Int8Weight, TwoTensor
from tests.tensors.checks import same, verdicts

aten = torch.ops.aten


def weight(zero_point: bool = False) -> Int8Weight:
    torch.manual_seed(0)
    result = Int8Weight.from_float(torch.randn(3, 4))
    return Int8Weight(result.codes, result.scale, torch.randn(3, 1).round()) if zero_point else result


def test_products_are_written_into_it() -> None:
    a, b, bias = torch.randn(4, 3), torch.randn(3, 6), torch.randn(4, 6)
    weight = Int8Weight.from_float(bias)
    exact = weight.to_plain()
    same(torch.addmm(weight, a, b), torch.addmm(exact, a, b))
    same(weight.from_plain(exact.addmm_(a, b)), weight.addmm_(a, b))
    same(weight.from_plain(a @ b), torch.mm(a, b, out=weight))
    wide = Int8Weight.from_float(torch.randn(3, 6))
    product = a @ wide.to_plain()
    step = product.abs().amax(1, keepdim=True) / 127
    assert ((torch.mm(a, wide, out=weight).to_plain() - product).abs() <= 0.51 * step).all()


def test_contract() -> None:
    assert verdicts(lambda: weight()) == set()


def test_from_float_is_within_half_a_step() -> None:
    dense = torch.randn(5, 7, requires_grad=True)
    rounded = Int8Weight.from_float(dense)
    assert (rounded.codes.dtype, rounded.scale.shape, rounded.shape, rounded.dtype) == (
        torch.int8,
        (5, 1),
        (5, 7),
        torch.float32,
    )
    assert ((rounded.to_plain() - dense).abs() <= rounded.scale / 2 + 1e-7).all()
    assert rounded.codes.abs().amax(1).eq(127).all() and not rounded.requires_grad
    assert not Int8Weight.from_float(torch.zeros(2, 2)).to_plain().any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_codes_of_coarse_dtypes_keep_their_sign(dtype: torch.dtype) -> None:
    dense = torch.randn(500, 7, dtype=dtype)
    rounded = Int8Weight.from_float(dense)
    off = (rounded.to_plain() - dense).abs().amax(1) / dense.abs().amax(1)
    assert rounded.codes.abs().le(127).all() and off.max() < 0.02


@pytest.mark.parametrize("zero_point", [False, True])
@pytest.mark.parametrize(
    "product",
    [
        lambda w: F.linear(torch.ones(2, 4), w),
        lambda w: F.linear(torch.ones(2, 5, 4), w, torch.ones(3)),
        lambda w: torch.ones(2, 3) @ w,
        lambda w: w @ torch.ones(4, 2),
        lambda w: w.t() @ torch.ones(3, 2),
        lambda w: w @ w.t(),
        lambda w: torch.addmm(torch.ones(2, 4), torch.ones(2, 3), w, beta=0.5, alpha=2),
        lambda w: torch.addmm(torch.ones(3, 3), w, w.t(), beta=2),
        lambda w: torch.ones(2, 12) @ w.view(12).view(12, 1),
        lambda w: w.t().reshape(-1) * torch.arange(12.0),
        lambda w: F.linear(torch.ones(4), w),
        lambda w: F.embedding(torch.tensor([0, 2]), w),
        lambda w: (w * 2 + 1).sum(0),
    ],
)
def test_products(product: Any, zero_point: bool) -> None:
    w = weight(zero_point)
    torch.testing.assert_close(product(w), product(w.to_plain()))


@pytest.mark.parametrize("shape", [(2, 4), (2, 5, 4)])
def test_gradient_of_the_other_operand(shape: tuple[int, ...]) -> None:
    w, x = weight(), torch.randn(shape, requires_grad=True)
    bias = torch.randn(3, requires_grad=True)
    (grads, expected) = (
        torch.autograd.grad(F.linear(x, w_, bias).square().sum(), [x, bias]) for w_ in (w, w.to_plain())
    )
    torch.testing.assert_close(grads, expected)


def test_products_never_build_the_float_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_plain(self: Int8Weight) -> torch.Tensor:
        raise AssertionError("materialized")

    monkeypatch.setattr(Int8Weight, "to_plain", to_plain)
    w = weight()
    x = torch.randn(2, 4, requires_grad=True)
    F.linear(x, w, torch.ones(3)).sum().backward()
    assert (w @ torch.ones(4, 2)).shape == (3, 2)


def test_views_keep_the_class() -> None:
    w = weight(zero_point=True)
    flat = w.view(12)
    assert type(flat) is Int8Weight and flat.codes.data_ptr() == w.codes.data_ptr() and flat.scale.shape == (12,)
    torch.testing.assert_close(flat.to_plain(), w.to_plain().view(12))
    assert type(w.view(3, 2, 2)) is Int8Weight and w.view(3, 2, 2).scale.shape == (3, 1, 1)
    assert [type(row) for row in w.unbind()] == [Int8Weight] * 3
    flat.copy_(torch.linspace(-1, 1, 12))
    assert (w.to_plain() - torch.linspace(-1, 1, 12).view(3, 4)).abs().max() < 1 / 127 / 2 + 1e-6
    torch.testing.assert_close(flat.to_plain(), w.to_plain().view(12))


def test_writing_rounds_again() -> None:
    w, new = weight(), torch.randn(3, 4)
    codes = w.codes
    w.copy_(new)
    assert w.codes is codes
    torch.testing.assert_close(w.to_plain(), Int8Weight.from_float(new).to_plain())
    before = w.to_plain()
    w.mul_(-2)
    torch.testing.assert_close(w.to_plain(), before * -2)
    half = w.to(torch.bfloat16)
    assert (half.dtype, half.codes.dtype) == (torch.bfloat16, torch.int8)


def test_saving() -> None:
    file = io.BytesIO()
    torch.save({"weight": weight(), "other": weight(zero_point=True)}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    torch.testing.assert_close(loaded["weight"].to_plain(), weight().to_plain())
    assert loaded["weight"].zero_point is None and loaded["other"].zero_point is not None


def test_an_int8_weight_with_two_scales() -> None:
    w = weight()
    double = Int8Weight(w.codes, TwoTensor(w.scale, w.scale * 2))
    result = F.linear(torch.ones(2, 4), double)
    torch.testing.assert_close(result.a, F.linear(torch.ones(2, 4), w))
    torch.testing.assert_close(result.b, 2 * result.a)


def test_the_class_is_generated() -> None:
    assert issubclass(Int8Weight, WrapperTensor) and Int8Weight.__wrapper_attributes__ is not None
