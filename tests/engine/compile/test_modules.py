"""Modules, compiled and in eager mode side by side: results, gradients, buffers, draws."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from subclass_aot import Int8Weight, QuantAwareWeight, TwoTensor, aot_compile
from subclass_aot.testing import difference


def run(module: nn.Module, call: Callable[..., Any], *inputs: Any) -> list[Any]:
    """Results, gradients and state after one step, under one seed."""
    torch.manual_seed(3)
    inputs = tuple(x.detach().clone().requires_grad_(x.requires_grad) for x in inputs)
    out = call(*inputs)
    if out.requires_grad:
        (out * torch.arange(out.numel()).view(out.shape)).sum().backward()
    state = [out, *[x.grad for x in inputs], *[p.grad for p in module.parameters()], *module.buffers(), torch.rand(1)]
    module.zero_grad()
    return state


def agree(module: nn.Module, *inputs: Any, steps: int = 2) -> Any:
    """Compares `steps` steps of a module with those of its compiled twin; returns the compiled twin."""
    twin = copy.deepcopy(module)
    compiled = aot_compile(twin)
    for mode in (True, False):
        module.train(mode)
        twin.train(mode)
        for _ in range(steps):
            for expected, got in zip(run(module, module, *inputs), run(twin, compiled, *inputs), strict=True):
                assert not difference(expected, got)
    assert len(compiled.recompiles) == 1, compiled.recompiles
    return compiled


@pytest.mark.parametrize(
    "norm, size",
    [
        (nn.BatchNorm1d(3), (5, 3)),
        (nn.BatchNorm2d(3, momentum=0.5), (2, 3, 4, 4)),
        (nn.BatchNorm1d(3, affine=False), (5, 3)),
        (nn.BatchNorm1d(3, track_running_stats=False), (5, 3)),
        (nn.InstanceNorm1d(3, track_running_stats=True), (2, 3, 4)),
        (nn.GroupNorm(3, 6), (2, 6, 4)),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), (5, 3)),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)), (5, 3)),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, nn.Module) else "",
)
def test_norms(norm: nn.Module, size: tuple[int, ...]) -> None:
    agree(norm, torch.randn(size, requires_grad=True))


def test_batch_norm_without_gradients() -> None:
    norm, x = nn.Sequential(nn.BatchNorm1d(3)), torch.randn(5, 3)
    with torch.no_grad():
        agree(norm, x, steps=3)


@pytest.mark.parametrize(
    "module", [nn.Dropout(0.3), nn.AlphaDropout(0.5), nn.FeatureAlphaDropout(0.5), nn.Dropout1d(0.5), nn.RReLU()]
)
def test_draws_are_those_of_eager(module: nn.Module) -> None:
    agree(nn.Sequential(module, module), torch.randn(4, 6, 5, requires_grad=True))


class Sharing(nn.Module):
    """An embedding tied to the head, a child used twice, a parameter under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        self.again = self.block
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.head(self.again(self.block(self.embed(tokens)).tanh()))


def test_tied_weights() -> None:
    compiled = agree(Sharing(), torch.tensor([[1, 2, 6], [0, 1, 1]]))
    assert compiled.explain().count("self.embed.weight: Parameter") == 2
    assert "self.head.weight" not in compiled.explain()


def test_layers_of_torch() -> None:
    images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten())
    agree(images, torch.randn(2, 1, 6, 6))
    agree(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 3, 8, requires_grad=True))


def quantized() -> nn.Sequential:
    module = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4))
    module[0].weight = nn.Parameter(Int8Weight.from_float(module[0].weight), requires_grad=False)
    module[2].weight = nn.Parameter(QuantAwareWeight(module[2].weight.detach()))
    return module


def doubled() -> nn.Sequential:
    module = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4))
    module[2].weight = nn.Parameter(TwoTensor(torch.randn(4, 5), torch.randn(4, 5)))
    return module


@pytest.mark.parametrize("make", [quantized, doubled])
def test_wrapper_parameters(make: Callable[[], nn.Sequential]) -> None:
    module = make()
    x = torch.randn(2, 6, requires_grad=True)
    twin = copy.deepcopy(module)
    compiled = aot_compile(twin)
    for call in (module, compiled):
        (call(x).square().sum()).backward()
    for (name, ours), theirs in zip(twin.named_parameters(), module.parameters(), strict=True):
        assert not difference(theirs.grad, ours.grad), name
    assert (twin[0].weight.grad is None) == isinstance(module[0].weight, Int8Weight)


def test_training_with_an_optimizer() -> None:
    module = quantized()
    twin = copy.deepcopy(module)
    compiled = aot_compile(twin)
    losses = []
    for model, call in ((module, module), (twin, compiled)):
        torch.manual_seed(0)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.mse_loss(call(torch.randn(8, 6)), torch.ones(8, 4))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[:5] == pytest.approx(losses[5:], rel=1e-5)
    assert losses[4] < losses[0] and compiled.recompiles == []


def test_modules_among_the_arguments() -> None:
    def apply(layers: list[Any], x: Any, *, last: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return last(x)

    compiled, x = aot_compile(apply), torch.randn(2, 3)
    first, second = nn.Linear(3, 3), nn.BatchNorm1d(3)
    twins = copy.deepcopy([first, second])
    for _ in range(2):
        expected, got = apply(twins[:1], x, last=twins[1]), compiled([first], x, last=second)
        assert not difference(expected, got)
        expected.square().sum().backward()
        got.square().sum().backward()
    for ours, theirs in zip((first, second), twins, strict=True):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert not difference(b.grad, a.grad)
        for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
            assert not difference(b, a)
    assert compiled.recompiles == []
    compiled([nn.Linear(3, 3)], x, last=second)
    assert len(compiled.recompiles) == 1, "another module is another signature"


def test_a_module_that_a_function_closes_over_brings_its_tensors() -> None:
    layer = nn.Linear(3, 2)
    compiled = aot_compile(lambda x: layer(x))
    compiled(torch.ones(1, 3)).sum().backward()
    assert isinstance(layer.weight, nn.Parameter) and layer.weight.grad is not None
    assert torch.equal(layer.weight.grad, torch.ones(2, 3))
    with torch.no_grad():
        layer.weight.zero_()
    assert torch.equal(compiled(torch.ones(1, 3)), layer.bias[None]) and not compiled.recompiles


def test_methods_and_bound_functions() -> None:
    class Model(nn.Linear):
        def loss(self, x: torch.Tensor) -> Any:
            return self(x).square().sum()

    model, x = Model(3, 2), torch.randn(4, 3)
    compiled = aot_compile(lambda model, x: model.loss(x))
    assert not difference(model.loss(x), compiled(model, x))
    compiled(model, x).backward()
    assert model.weight.grad is not None
