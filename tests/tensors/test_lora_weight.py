"""Low-rank adaptation against the sum that it stands for, computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from subclass_aot import Int4Weight, Int8Weight, LoraWeight, NF4Weight, aot_compile, train_fields
from tests.tensors.checks import COMPILERS, EACH_COMPILER, check_linear, check_saving, layer, same, verdicts

BASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda weight: weight,
    "Int4Weight": lambda weight: Int4Weight.from_float(weight, group=16),
    "NF4Weight": lambda weight: NF4Weight.from_float(weight, block=16),
    "Int8Weight": Int8Weight.from_float,
}


def lora(seed: int = 0, base: str = "dense") -> LoraWeight:
    torch.manual_seed(seed)
    return LoraWeight(BASES[base](torch.randn(8, 64)), torch.randn(8, 2), torch.randn(2, 64), 0.5)


NOT_OFFERED = {
    *[(23, f"x.{op}") for op in ("copy_(x)", "mul_(x)", "div_(3)", "clamp_(max=0.25)", "sub_(dense, alpha=2)")],
    *[
        (23, f"x.{op}{where}")
        for op in ("mul_(2)", "add_(dense)", "zero_()", "copy_(dense)", "fill_(0.5)")
        for where in ("", " in inference mode")
    ],
    *[(23, f"write to {what}") for what in ("one row", "some columns", "some columns, larger", "one element")],
    *[(23, f"write to a {what} view") for what in ("transposed", "flat")],
    *[(23, "out="), (24, "empty_like"), (24, "new_zeros"), (26, "random"), (38, "load_state_dict of dense")],
    *[(40, name) for name in ("SGD", "SGD with momentum", "SGD(foreach=True)", "AdamW", "AdamW(foreach=True)")],
    (40, "AdamW(fused=True)"),
}
"""A dense matrix is no sum of a base and thin factors, so nothing is written into one."""


@pytest.mark.long
def test_contract() -> None:
    assert verdicts(lambda: lora()) == NOT_OFFERED


def test_beside_is_the_base_until_it_is_trained() -> None:
    for make in BASES.values():
        base = make(torch.randn(8, 64))
        weight = LoraWeight.beside(base, rank=3, gain=2.0)
        plain = base.to_plain() if hasattr(base, "to_plain") else base
        assert weight.to_plain().equal(plain) and weight.base.dtype == torch.float32
        assert (weight.left.shape, weight.right.shape, weight.gain) == ((8, 3), (3, 64), 2.0)
        assert not weight.left.any() and weight.right.all()


@pytest.mark.parametrize("base", BASES)
def test_it_is_the_sum(base: str) -> None:
    weight = lora(base=base)
    plain = weight.base.to_plain() if hasattr(weight.base, "to_plain") else weight.base
    torch.testing.assert_close(weight.to_plain(), plain + 0.5 * weight.left @ weight.right)
    torch.testing.assert_close(weight.t().to_plain(), weight.to_plain().t())


@pytest.mark.parametrize(
    "compiler, base", [(c, b) for c in COMPILERS for b in BASES if c != "inductor" or b in ("dense", "NF4Weight")]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_linear(compiler: str, base: str) -> None:
    check_linear(lora(base=base), compiler)


@pytest.mark.parametrize("door", [lambda f: f, aot_compile], ids=["eager", "compiled"])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_products_never_make_the_sum(bias: bool, rank: int, door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x = lora(), torch.randn(*[3] * (rank - 1), 64, requires_grad=True)
    b = torch.randn(weight.shape[0]) if bias else None
    expected = F.linear(x, weight.to_plain(), b)

    def to_plain(self: LoraWeight) -> torch.Tensor:
        raise AssertionError("materialized")

    monkeypatch.setattr(LoraWeight, "to_plain", to_plain)
    result = door(F.linear)(x, weight, b)
    result.sum().backward()
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [{}, {"beta": 0.5}, {"alpha": 2}, {"beta": 3, "alpha": 0.5}])
def test_scaled_sums_of_products(scale: dict[str, Any]) -> None:
    weight, x, bias = lora().t(), torch.randn(3, 64), torch.randn(3, lora().shape[0])
    expected = torch.addmm(bias, x, weight.to_plain(), **scale)
    torch.testing.assert_close(torch.addmm(bias, x, weight, **scale), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("base", ["dense", "Int4Weight", "NF4Weight"])
@pytest.mark.parametrize("compiler", EACH_COMPILER)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_factors_are_trained_by_adamw(compiler: str, base: str) -> None:
    weight = LoraWeight.beside(BASES[base](torch.randn(8, 64)), rank=2, gain=0.5)
    plain = weight.to_plain()
    left, right = (nn.Parameter(factor.clone()) for factor in (weight.left, weight.right))
    module = layer(weight)
    bias = nn.Parameter(module.bias.detach().clone())
    train_fields(module, "weight", "left", "right")
    before = [p.detach().clone() for p in module.parameters() if not p.requires_grad]
    assert sum(p.requires_grad for p in module.parameters()) == 3
    compiled = COMPILERS[compiler](module)
    mine = torch.optim.AdamW(module.parameters(), lr=0.1, eps=1e-4)
    theirs = torch.optim.AdamW([left, right, bias], lr=0.1, eps=1e-4)
    x = torch.randn(5, 64)
    for _ in range(4):
        mine.zero_grad()
        theirs.zero_grad()
        compiled(x).square().mean().backward()
        F.linear(x, plain + 0.5 * left @ right, bias).square().mean().backward()
        mine.step()
        theirs.step()
    now: Any = module.weight
    for got, expected in ((now.left, left), (now.right, right), (module.bias, bias)):
        torch.testing.assert_close(got.detach(), expected.detach(), rtol=1e-3, atol=1e-4)
    assert now.left.any()
    for after, value in zip((p for p in module.parameters() if not p.requires_grad), before, strict=True):
        same(after.detach(), value)


@pytest.mark.parametrize("base", ["dense", "NF4Weight"])
def test_saving(base: str, tmp_path: Path) -> None:
    check_saving(lora(base=base), lora(1, base=base), tmp_path)
