"""Torch's own compiler behind our graphs, against eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import Int8Weight, QuantAwareWeight, TwoTensor, aot_compile
from subclass_aot.demo.digits import Digits, quantized_vit
from subclass_aot.demo.lockstep import WithLoss
from subclass_aot.testing import dense_leaves, difference

# Inductor warns of parts of torch that torch itself has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore")


def agree(module: nn.Module, *args: Any) -> Any:
    """One step in eager mode and one compiled; returns the compiled module."""
    twin = copy.deepcopy(module)
    compiled = aot_compile(twin, fw_compiler="inductor")
    expected, got = module(*args), compiled(*args)
    torch.testing.assert_close(got, expected)
    expected.sum().backward()
    got.sum().backward()
    for (name, ours), theirs in zip(twin.named_parameters(), module.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None) and type(ours.grad) is type(theirs.grad), name
        if ours.grad is not None:
            for a, b in zip(dense_leaves(ours.grad), dense_leaves(theirs.grad), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    return compiled


def dense(layer: nn.Linear) -> None:
    pass


def frozen(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(Int8Weight.from_float(layer.weight), requires_grad=False)


def trained(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(QuantAwareWeight(layer.weight.detach()))


@pytest.mark.parametrize("change", [dense, frozen, trained], ids=lambda change: change.__name__)
def test_small_model(change: Callable[[nn.Linear], None]) -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4))
    change(module[3])
    agree(module, torch.randn(5, 6))


def test_writes_into_inputs() -> None:
    def program(x: Any, y: torch.Tensor) -> Any:
        y.mul_(2)
        x.b.add_(1)
        return x * y

    def make() -> tuple[Any, torch.Tensor]:
        return TwoTensor(torch.ones(3), torch.ones(3)), torch.arange(3.0)

    (x, y), (z, w) = make(), make()
    expected, got = program(x, y), aot_compile(program, fw_compiler="inductor")(z, w)
    for a, b in ((x, z), (expected, got)):
        for one, other in zip(dense_leaves(a), dense_leaves(b), strict=True):
            torch.testing.assert_close(one, other)
    assert torch.equal(y, w)


def test_the_digits_model() -> None:
    digits = Digits.load()
    agree(WithLoss(quantized_vit()), digits.train_images[:32], digits.train_labels[:32])


@pytest.mark.parametrize(("layout", "dynamic"), [(torch.contiguous_format, True), (torch.channels_last, False)])
def test_convolutions_keep_the_strides_that_backward_is_told(layout: torch.memory_format, dynamic: bool) -> None:
    convolution = nn.Conv2d(3, 4, 3, padding=1)
    compiled = aot_compile(copy.deepcopy(convolution), fw_compiler="inductor", dynamic=dynamic)
    x = torch.rand(2, 3, 8, 8).to(memory_format=layout)
    gradients = []
    for module in (convolution, compiled):
        given = x.clone().requires_grad_()
        result = module(given).tanh()
        result.square().sum().backward()
        gradients.append((result.detach(), given.grad))
    for expected, got in zip(*gradients, strict=True):
        assert not difference(expected, got, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(compiled.fn.parameters(), convolution.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("compiler", "dynamic"), [("eager", False), ("eager", True), ("inductor", False)])
def test_recurrent_layers(compiler: str, dynamic: bool) -> None:
    """The LSTM that torch runs for training on a CPU works only where autograd sees it."""
    layer = nn.LSTM(3, 4)
    compiled = aot_compile(copy.deepcopy(layer), fw_compiler=compiler, dynamic=dynamic)
    x = torch.rand(2, 2, 3)
    for module in (layer, compiled):
        module(x)[0].square().sum().backward()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x))
    for ours, theirs in zip(compiled.fn.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
