"""Products by formula: torch's own where it has one, and those that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

import subclass_aot as sa
from subclass_aot.base.operators import flops_of, is_counted

aten: Any = torch.ops.aten
ONES = torch.ones

PRODUCTS: dict[str, tuple[Callable[[], Any], int]] = {
    "mv": (lambda: ONES(3, 4) @ ONES(4), 2 * 3 * 4),
    "addmv": (lambda: torch.addmv(ONES(3), ONES(3, 4), ONES(4)), 2 * 3 * 4),
    "dot": (lambda: ONES(5) @ ONES(5), 2 * 5),
    "attention": (lambda: F.scaled_dot_product_attention(*[ONES(2, 3, 5, 8)] * 3), 2 * 2 * 2 * 3 * 5 * 5 * 8),
    "int8": (lambda: torch._int_mm(ONES(32, 16).char(), ONES(16, 8).char()), 2 * 32 * 16 * 8),
    "lstm": (lambda: nn.LSTM(4, 6)(ONES(3, 2, 4)), 2 * 3 * 2 * (4 * 6 * 4 + 4 * 6 * 6)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_that_torch_does_not_count(name: str) -> None:
    program, expected = PRODUCTS[name]
    with sa.meta(), sa.profile(nn.Module()) as report:
        program()
    assert report.flops() == expected and not report.uncounted


def test_plain_products_are_torchs_count() -> None:
    def program() -> None:
        F.conv2d(ONES(2, 3, 8, 8), ONES(4, 3, 3, 3))
        torch.baddbmm(ONES(2, 3, 5), ONES(2, 3, 4), ONES(2, 4, 5))

    with sa.profile(nn.Module()) as report, FlopCounterMode(display=False) as counter:
        program()
    assert report.flops() == counter.get_total_flops() > 0


def test_what_may_have_products_and_no_formula_is_not_counted() -> None:
    assert not is_counted(aten.linalg_cholesky_ex.default)
    assert not is_counted(aten._fft_r2c.default)
    assert is_counted(aten.mm.default) and is_counted(aten.sin.default) and is_counted(aten.sum.dim_IntList)
    assert is_counted(aten.t.default) and is_counted(aten.zeros.default)
    assert is_counted(aten.add_.Tensor) and is_counted(aten.native_layer_norm_backward.default)


def test_a_formula_of_ones_own_is_used_at_once() -> None:
    @torch.library.custom_op("profiled::mine", mutates_args=())
    def mine(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    mine.register_fake(torch.empty_like)
    func = torch.ops.profiled.mine.default
    assert not is_counted(func)
    register_flop_formula(torch.ops.profiled.mine)(lambda shape, out_shape=None, **kwargs: 7 * shape[0])
    assert is_counted(func) and flops_of(func, (ONES(3),), {}, ONES(3)) == 21
