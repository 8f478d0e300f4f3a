"""Weights in eight bits whose products round the other operand, against the rounded operands."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from subclass_aot import Int8DynamicWeight, Int8Weight, aot_compile, profile
from subclass_aot.base import _torch
from subclass_aot.tensors import products
from subclass_aot.tensors.int8_weight import quantize
from tests.tensors.checks import COMPILERS, EACH_COMPILER, FLOATS, same, verdicts


def weight(dtype: torch.dtype = torch.float32) -> Int8DynamicWeight:
    made = torch.randn(24, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Int8DynamicWeight.from_float(made.to(dtype))


def input_of(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """What the rows of an operand are rounded to, in float64."""
    codes, steps = quantize(x, [-1])
    return codes.double() * steps.double()


def near(found: torch.Tensor, x: torch.Tensor, w: Any, bias: torch.Tensor | None = None) -> None:
    expected = F.linear(rounded(x), w.to_plain().double(), None if bias is None else bias.double())
    assert (found.dtype, found.shape) == (x.dtype, expected.shape)
    assert (found.double() - expected).norm() <= 4 * torch.finfo(x.dtype).eps * expected.norm()


ROUNDED = [(27, "drawn calls")] + [
    (32, f"other operand of {product}") for product in ("linear", "linear with bias", "y @ x", "embedding of a product")
]


@pytest.mark.long
def test_contract() -> None:
    expected = dict.fromkeys(ROUNDED, "the other operand of a product is rounded, which is what the class is for")
    assert verdicts(lambda: weight(), expected) == set()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_products(dtype: torch.dtype) -> None:
    w, bias = weight(dtype), input_of(24, dtype=dtype)
    for size in ((1, 40), (2, 5, 40), (20, 40), (40,), (0, 40)):
        x = input_of(*size, dtype=dtype)
        near(F.linear(x, w), x, w)
        near(F.linear(x, w, bias), x, w, bias)
    columns = input_of(40, 3, dtype=dtype).t()
    near(columns @ w.t(), columns, w)
    x = input_of(3, 40, dtype=dtype) * (torch.finfo(dtype).max / 200)
    assert (x @ w.t()).isfinite().all()  # though the sums of codes are larger than all numbers of float16


@pytest.mark.parametrize("compiler", EACH_COMPILER)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_compiled(compiler: str) -> None:
    w, x = weight(torch.bfloat16), input_of(3, 40, dtype=torch.bfloat16)
    with torch.no_grad():
        near(COMPILERS[compiler](F.linear)(x, w), x, w)


def test_gradients_are_those_of_the_weight_in_eight_bits() -> None:
    w, plain = weight(), Int8Weight(weight().codes, weight().scale)
    for function in (F.linear, aot_compile(F.linear)):
        x, y = input_of(3, 40).requires_grad_(), input_of(3, 40).requires_grad_()
        function(x, w).sum().backward()
        F.linear(y, plain).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


def test_what_has_no_sum_of_integers_is_as_in_the_base() -> None:
    w = weight()
    shifted = Int8DynamicWeight(w.codes, w.scale, torch.ones(24, 1))
    x = input_of(2, 40)
    torch.testing.assert_close(F.linear(x, shifted), x @ shifted.to_plain().t())
    torch.testing.assert_close(w @ input_of(40, 2), w.to_plain() @ input_of(40, 2))
    assert type(w.t()) is type(w[:4]) is type(w.to(torch.bfloat16)) is Int8DynamicWeight


def test_writes_and_rows_that_change() -> None:
    w, compiled = weight(), aot_compile(F.linear)
    other = input_of(24, 40)
    with torch.no_grad():
        w.copy_(other)
    same(w, Int8DynamicWeight.from_float(other))
    for rows in (2, 3, 30):
        x = input_of(rows, 40)
        near(compiled(x, w), x, w)
    assert len(compiled.recompiles) == 1


def test_what_it_costs_is_the_product() -> None:
    report = profile(F.linear, input_of(4, 40), weight())
    assert report.flops() == 2 * 4 * 40 * 24
    assert "_int_mm" in [work.operator for work in report.timeline.work]


def test_sums_are_exact() -> None:
    if not _torch.quantized._sums_are_exact():
        pytest.skip("this processor adds up with saturation")
    codes = torch.full((4, 4096), 127, dtype=torch.int8)
    assert products.int_product(codes, -codes.t()).eq(-4096 * 127**2).all()
