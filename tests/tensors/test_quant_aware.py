"""Weights that are trained for eight bits: products see the rounded weight, gradients reach the float one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.tensors import Int8Weight, QuantAwareWeight, quantize_
from tests.tensors.checks import FLOATS, verdicts
from tests.testing.contract.classes import PRODUCTS


def quant_aware() -> Any:
    torch.manual_seed(0)
    return torch.nn.Parameter(QuantAwareWeight(torch.randn(3, 4)))


@pytest.mark.long
def test_contract() -> None:
    assert verdicts(lambda: QuantAwareWeight(torch.randn(4, 6)), PRODUCTS) == {(32, "torch.compile: unused result")}


def test_products_see_the_rounded_weight() -> None:
    w, x = quant_aware(), torch.randn(2, 4, requires_grad=True)
    bias = torch.zeros(3, requires_grad=True)
    rounded = w.frozen().to_plain().requires_grad_()
    torch.testing.assert_close(F.linear(x, w, bias), F.linear(x, rounded, bias))
    torch.testing.assert_close(F.linear(x, w), F.linear(x, w.frozen()))
    grads = torch.autograd.grad(F.linear(x, w, bias).square().sum(), [x, w, bias])
    torch.testing.assert_close(
        grads, torch.autograd.grad(F.linear(x, rounded, bias).square().sum(), [x, rounded, bias])
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shared_dim", [0, 1])
def test_what_is_kept_after_training_are_the_values_that_products_saw(shared_dim: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(4, 3, dtype=dtype))
    model[0].weight = torch.nn.Parameter(QuantAwareWeight(model[0].weight.detach(), shared_dim))
    seen = F.linear(torch.eye(4, dtype=dtype), model[0].weight).t()  # of ones and zeros: nothing is rounded
    quantize_(model, lambda weight: weight.frozen())  # type: ignore[attr-defined]
    assert type(model[0].weight.data) is Int8Weight and model[0].weight.to_plain().equal(seen)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}])
def test_training_updates_the_float_weight(optimizer: Any, options: dict[str, Any]) -> None:
    w, dense = quant_aware(), torch.nn.Parameter(quant_aware().master.clone())
    steps = [optimizer([parameter], lr=0.1, **options) for parameter in (w, dense)]
    x = torch.randn(8, 4)
    for _ in range(3):
        F.linear(x, w).square().sum().backward()
        rounded = QuantAwareWeight(dense.detach()).rounded().requires_grad_()
        F.linear(x, rounded).square().sum().backward()
        dense.grad = rounded.grad
        for step in steps:
            step.step()
        w.grad = None
    torch.testing.assert_close(w.master, dense.detach())


def test_it_compiles() -> None:
    torch._dynamo.reset()
    module = torch.nn.Linear(4, 3)
    module.weight = quant_aware()
    x = torch.randn(2, 4)
    expected = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x).square().sum(), list(module.parameters())), expected)
    torch._dynamo.reset()


def test_the_class_is_generated() -> None:
    assert issubclass(QuantAwareWeight, WrapperTensor) and QuantAwareWeight.__wrapper_attributes__ is not None
