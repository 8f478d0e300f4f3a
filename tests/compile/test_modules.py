"""Modules: buffers, tied and replaced weights, wrappers for parameters, modules inside modules."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight, QuantAwareWeight, TwoTensor, aot_compile
from subclass_aot.errors import MutationError
from subclass_aot.testing import difference

# A module, its twin compiled; both get the same data.


def step(call: Any, module: torch.nn.Module, *args: Any) -> Any:
    module.zero_grad()
    torch.manual_seed(5)
    out = call(*args)
    if out.requires_grad:
        out.backward(torch.ones_like(out))
    return out


def agree(module: torch.nn.Module, compiled: Any, twin: torch.nn.Module, *args: Any) -> None:
    expected, got = step(module, module, *args), step(compiled, twin, *args)
    assert not difference(expected, got)
    for (name, a), (_, b) in zip(module.named_parameters(), twin.named_parameters(), strict=True):
        assert not difference(a, b), name
        assert (a.grad is None) == (b.grad is None), name
        assert a.grad is None or not difference(a.grad, b.grad, strides=False), name
    for (name, a), (_, b) in zip(module.named_buffers(), twin.named_buffers(), strict=True):
        assert not difference(a, b), name


def pair(module: torch.nn.Module) -> tuple[torch.nn.Module, Any, torch.nn.Module]:
    twin = copy.deepcopy(module)
    return module, aot_compile(twin), twin


def test_batch_norm() -> None:
    module, compiled, twin = pair(torch.nn.Sequential(torch.nn.Conv2d(1, 3, 2), torch.nn.BatchNorm2d(3)))
    for mode in (True, True, False, True, False):
        module.train(mode)
        twin.train(mode)
        agree(module, compiled, twin, torch.rand(4, 1, 3, 3))
    assert twin[1].num_batches_tracked == 3 and len(compiled.recompiles) == 1


def test_dropout_draws_as_eager() -> None:
    module, compiled, twin = pair(torch.nn.Sequential(torch.nn.Linear(4, 50), torch.nn.Dropout(0.5)))
    agree(module, compiled, twin, torch.rand(3, 4))
    agree(module, compiled, twin, torch.rand(3, 4))


class Tied(torch.nn.Module):
    def __init__(self, wrapped: bool) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(6, 4)
        self.head = torch.nn.Linear(4, 6, bias=False)
        if wrapped:
            self.embedding.weight = torch.nn.Parameter(TwoTensor(torch.rand(6, 4), torch.rand(6, 4)))
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens).relu())


@pytest.mark.parametrize("wrapped", [False, True], ids=["dense", "wrapper"])
def test_tied_weights(wrapped: bool) -> None:
    module, compiled, twin = pair(Tied(wrapped))
    for _ in range(2):
        agree(module, compiled, twin, torch.tensor([1, 4, 4]))
    assert twin.head.weight is twin.embedding.weight


class WithWrappers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = torch.nn.Linear(4, 5)
        self.trained = torch.nn.Linear(5, 3)
        weight = Int8Weight.from_float(self.frozen.weight)
        self.frozen.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.trained.weight = torch.nn.Parameter(QuantAwareWeight(self.trained.weight.detach().clone()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.trained(self.frozen(x).tanh())


def test_training_with_wrapper_parameters() -> None:
    module, compiled, twin = pair(WithWrappers())
    optimizers = [torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 0.1) for m in (module, twin)]
    for _ in range(3):
        agree(module, compiled, twin, torch.rand(2, 4))
        for optimizer in optimizers:
            optimizer.step()
    assert not compiled.recompiles
    assert isinstance(twin.trained.weight, QuantAwareWeight)


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("history", TwoTensor(torch.zeros(3), torch.zeros(3)))

    def forward(self, x: torch.Tensor) -> Any:
        self.count += 1
        self.history[0] = 7.0
        self.history.mul_(0.5).add_(x)
        return self.history * self.count


def test_written_buffers() -> None:
    module, compiled, twin = pair(Counter())
    count, history = twin.count, twin.history
    for _ in range(3):
        agree(module, compiled, twin, torch.rand(3))
    assert twin.count is count and twin.history is history and count == 3


class Reassigns(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.name == "mean":
            self.mean = self.mean * 0.9 + x.detach()
        else:
            self.weight = torch.nn.Parameter(self.weight * 2)
        return x * self.weight


@pytest.mark.parametrize("name", ["mean", "weight"])
def test_a_reassigned_buffer(name: str) -> None:
    module = Reassigns(name)
    before = dict(module._buffers), dict(module._parameters)
    with pytest.raises(MutationError, match=rf"self\.{name} is another tensor after the call") as error:
        aot_compile(module)(torch.rand(3))
    assert f"self.{name}.copy_(...)" in str(error.value)
    assert module.mean is before[0]["mean"] and module.weight is before[1]["weight"]
    assert not module.mean.any()


def test_modules_among_arguments_and_results() -> None:
    layer = torch.nn.Linear(3, 3)

    def program(data: dict[str, Any], *, scale: float = 1.0) -> dict[str, Any]:
        out = data["layer"](data["x"]) * scale
        return {"out": out, "layer": data["layer"], "weight": data["layer"].weight, "scale": scale}

    compiled = aot_compile(program)
    x = torch.rand(2, 3)
    got = compiled({"layer": layer, "x": x}, scale=2.0)
    assert got["layer"] is layer and got["weight"] is layer.weight and got["scale"] == 2.0
    got["out"].sum().backward()
    expected = torch.autograd.grad(program({"layer": layer, "x": x}, scale=2.0)["out"].sum(), layer.weight)[0]
    torch.testing.assert_close(layer.weight.grad, expected)


def test_checkpoint() -> None:
    from torch.utils.checkpoint import checkpoint

    module, compiled, twin = pair(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()))
    x = torch.rand(2, 3, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    for call, value in ((module, x), (compiled, y)):
        checkpoint(call, value, use_reentrant=False).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_parametrized_and_shared_modules() -> None:
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 3))
    module, compiled, twin = pair(torch.nn.Sequential(layer, torch.nn.ReLU(), layer))
    for _ in range(2):
        agree(module, compiled, twin, torch.rand(2, 3))
