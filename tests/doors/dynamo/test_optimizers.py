"""Compiled steps of optimizers, against eager mode. Dynamo keeps their tensors in the graph, and passes none."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from subclass_aot import Int8Weight, quantize_
from subclass_aot.base import _torch
from tests.doors.dynamo.checks import rand

ForeignTwoTensor: Any = _torch.wrappers.foreign_two_tensor()

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1),
    "AdamW, foreach": lambda p: torch.optim.AdamW(p, 0.1, foreach=True),
    "AdamW, a tensor as lr": lambda p: torch.optim.AdamW(p, torch.tensor(0.1), foreach=False),
    "Adam, fused": lambda p: torch.optim.Adam(p, 0.1, fused=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.5),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
}


def model_of() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    quantize_(model[2], Int8Weight)
    return model


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, step: Callable[[], Any]) -> None:
    torch.manual_seed(1)
    for _ in range(3):
        optimizer.zero_grad()
        model(rand(5, 4)).square().sum().backward()
        step()


def state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [x for of in optimizer.state.values() for x in of.values() if isinstance(x, Tensor)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_compiled_step(name: str) -> None:
    mine, other = model_of(), model_of()
    expected, found = OPTIMIZERS[name](other.parameters()), OPTIMIZERS[name](mine.parameters())
    steps(other, expected, expected.step)
    compiled = torch.compile(found.step, backend="subclass_aot")
    steps(mine, found, compiled)
    for optimizer in expected, found:  # other tensors, of the same values
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    steps(other, expected, expected.step)
    steps(mine, found, compiled)
    torch.testing.assert_close(list(mine.parameters()), list(other.parameters()))
    torch.testing.assert_close(state(found), state(expected))


def test_a_step_of_training_in_one_function() -> None:
    mine, other = model_of(), model_of()
    optimizers = [torch.optim.AdamW(model.parameters(), 0.1) for model in (mine, other)]

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
        loss: Tensor = model(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    compiled = torch.compile(step, backend="subclass_aot")
    for size in 5, 5, 6:
        x = rand(size, 4)
        torch.testing.assert_close(compiled(mine, optimizers[0], x), step(other, optimizers[1], x))
    torch.testing.assert_close(list(mine.parameters()), list(other.parameters()))


def test_a_foreign_wrapper_as_a_parameter() -> None:
    def made() -> Any:
        torch.manual_seed(0)
        return nn.Parameter(rand(3, 2, cls=ForeignTwoTensor))

    parameters = [made(), made()]
    optimizers = [torch.optim.SGD([p], 0.1, momentum=0.9) for p in parameters]
    for optimizer, p in zip(optimizers, parameters, strict=True):
        step: Any = torch.compile(optimizer.step, backend="subclass_aot") if p is parameters[0] else optimizer.step
        for _ in range(3):
            optimizer.zero_grad()
            (p * p).sum().backward()
            step()
    mine, other = parameters
    torch.testing.assert_close((mine.a, mine.b), (other.a, other.b))


def test_what_is_compiled_goes_with_the_optimizer() -> None:
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    steps(model, optimizer, torch.compile(optimizer.step, backend="subclass_aot"))
    references = [weakref.ref(x) for x in (model, *model.parameters(), *state(optimizer))]
    del model, optimizer
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)
