"""Fields that are trained, against the same dense tensors trained by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from subclass_aot import Int8Weight, Outer, TwoTensor, WrapperTensor, aot_compile, structure
from subclass_aot.kit.wrapper import train_fields


class Lora(WrapperTensor):
    """`base + b @ a`."""

    base: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    gain: float = 1.0

    def outer_metadata(self) -> Outer:
        return Outer.like(self.base)

    def to_plain(self) -> torch.Tensor:
        base = self.base.to_plain() if hasattr(self.base, "to_plain") else self.base
        return base + self.gain * (self.b @ self.a)


def layer(base: torch.Tensor) -> nn.Linear:
    torch.manual_seed(1)
    made = nn.Linear(6, 4)
    made.weight = nn.Parameter(Lora(base, torch.randn(2, 6), torch.randn(4, 2), 0.5), requires_grad=False)
    return made


@pytest.mark.parametrize(
    "compile",
    [
        lambda m: m,
        aot_compile,
        lambda m: aot_compile(m, fw_compiler="inductor"),
        lambda m: torch.compile(m, backend="aot_eager"),
    ],
    ids=["eager", "aot", "inductor", "torch.compile"],
)
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_low_rank_factors_under_adamw(compile: Any, quantized: bool) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    weight = torch.randn(4, 6)
    base = Int8Weight.from_float(weight) if quantized else weight
    module = layer(base)
    lora: Any = module.weight
    a, b = (nn.Parameter(x.clone()) for x in (lora.a, lora.b))
    bias = nn.Parameter(module.bias.detach().clone())
    train_fields(module, "weight", "a", "b")
    before = lora.base.to_plain() if quantized else lora.base.clone()
    compiled = compile(module)
    mine = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.1)
    theirs = torch.optim.AdamW([a, b, bias], lr=0.1, weight_decay=0.1)
    x = torch.randn(3, 6)
    for _ in range(3):
        mine.zero_grad()
        theirs.zero_grad()
        compiled(x).square().mean().backward()
        F.linear(x, before + 0.5 * (b @ a), bias).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        torch.nn.utils.clip_grad_norm_([a, b, bias], 1.0)
        mine.step()
        theirs.step()
    now: Any = module.weight
    for got, expected in ((now.a, a), (now.b, b), (module.bias, bias)):
        torch.testing.assert_close(got.detach(), expected.detach(), rtol=1e-4, atol=1e-5)
    assert torch.equal(now.base.to_plain() if quantized else now.base, before)
    assert type(now) is Lora and now.requires_grad and sum(p.requires_grad for p in module.parameters()) == 3


def test_learned_scales() -> None:
    torch.manual_seed(0)
    module = nn.Linear(6, 4, bias=False)
    module.weight = nn.Parameter(Int8Weight.from_float(module.weight), requires_grad=False)
    codes, scale = module.weight.codes, module.weight.scale.clone().requires_grad_()  # type: ignore[attr-defined]
    train_fields(module, "weight", "scale")
    x = torch.randn(3, 6)
    aot_compile(module)(x).sin().sum().backward()
    F.linear(x, codes * scale).sin().sum().backward()
    (trained,) = [p for p in module.parameters() if p.requires_grad]
    torch.testing.assert_close(trained.grad, scale.grad)


def test_a_class_that_runs_field_by_field() -> None:
    module = nn.Module()
    module.pair = nn.Parameter(TwoTensor(torch.ones(2), torch.ones(2)))
    train_fields(module, "pair", "b")
    (module.pair * 3).b.sum()  # type: ignore[operator]
    (module.pair * TwoTensor(torch.ones(2), torch.full((2,), 3.0))).backward(  # type: ignore[operator]
        TwoTensor(torch.ones(2), torch.ones(2))
    )
    assert [None if p.grad is None else p.grad.tolist() for p in module.parameters()] == [None, [3.0, 3.0]]


def test_saving_copying_and_going_back() -> None:
    torch.manual_seed(0)
    module = layer(torch.randn(4, 6))
    expected = module(torch.ones(1, 6))
    other = layer(torch.zeros(4, 6))
    for each in (module, other):
        train_fields(each, "weight", "a")
    other.load_state_dict(module.state_dict())
    again = copy.deepcopy(other)
    for each in (module, other, again):
        torch.testing.assert_close(each(torch.ones(1, 6)), expected)
    parametrize.remove_parametrizations(again, "weight")
    assert type(again.weight) is Lora and isinstance(again.weight, nn.Parameter)
    torch.testing.assert_close(again(torch.ones(1, 6)), expected)


class Several(WrapperTensor, fallback="each"):
    parts: list[torch.Tensor]
    places: torch.Tensor = structure()


def test_a_field_of_several_tensors() -> None:
    module = nn.Module()
    module.w = nn.Parameter(Several([torch.ones(2), torch.ones(2)], torch.arange(2)), requires_grad=False)
    train_fields(module, "w", "parts")
    assert [p.requires_grad for p in module.parameters()] == [True, True, False]
    assert type(module.w) is Several and len(module.w.parts) == 2


def test_what_cannot_be_trained_is_named() -> None:
    module = layer(torch.randn(4, 6))
    with pytest.raises(ValueError, match=r"'base_' is no field of the Lora `weight` .*\n  Those that can: a, b, base"):
        train_fields(module, "weight", "base_")
    with pytest.raises(TypeError, match="bias of this Linear is a Parameter, and not"):
        train_fields(module, "bias", "a")
    with pytest.raises(TypeError, match="wait of this Linear is no parameter"):
        train_fields(module, "wait", "a")
    module.weight = nn.Parameter(Int8Weight.from_float(torch.randn(4, 6)), requires_grad=False)
    for field in ("codes", "zero_point"):
        with pytest.raises(ValueError, match="Those that can: scale"):
            train_fields(module, "weight", field)
    assert type(module.weight) is Int8Weight and not hasattr(module, "parametrizations")
