"""Gradients of tensors that are kept are read at each call, and nothing else is; each change against eager."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.base import hooks
from subclass_aot.engine.guards.static_input_cache import StaticInputCache

pytestmark = pytest.mark.usefixtures("either_way")


class Step:
    """Some parameters, and a step over these that writes them where they have a gradient."""

    def __init__(self, wraps: bool = False) -> None:
        self.parameters = [nn.Parameter(torch.full((2, 3), float(i))) for i in range(3)]
        if wraps:
            self.parameters[0] = nn.Parameter(TwoTensor(torch.ones(2, 3), torch.full((2, 3), 2.0)))
        self.parameters.append(nn.Parameter(torch.ones(1)))  # which has none
        self.held = [torch.zeros(2, 3)]
        self.give_gradients(1.0)

    def give_gradients(self, value: float) -> None:
        for i, p in enumerate(self.parameters[:3]):
            p.grad = torch.full_like(p.detach(), value + i)

    @torch.no_grad()
    def step(self) -> None:
        for p in self.parameters:
            if p.grad is not None:
                self.held[0].add_(1)
                p.add_(p.grad, alpha=-0.5)


def one_for_two(step: Step) -> None:
    step.parameters[1].grad = step.parameters[2].grad


def expanded(step: Step) -> None:
    step.parameters[1].grad = torch.ones(1).expand(2, 3)


def memory_shared(step: Step) -> None:
    memory = torch.arange(12.0)
    step.parameters[1].grad, step.parameters[2].grad = memory[:6].view(2, 3), memory[3:9].view(2, 3)


CHANGES: dict[str, Callable[[Step], Any]] = {
    "nothing": lambda s: None,
    "others": lambda s: s.give_gradients(5.0),
    "written": lambda s: s.parameters[1].grad.mul_(3),
    "none": lambda s: setattr(s.parameters[1], "grad", None),
    "none at all": lambda s: [setattr(p, "grad", None) for p in s.parameters],
    "one more": lambda s: setattr(s.parameters[3], "grad", torch.ones(1)),
    "one for two": one_for_two,
    "expanded": expanded,
    "memory shared": memory_shared,
    "what is held": lambda s: setattr(s.parameters[1], "grad", s.held[0]),
    "the parameter's memory": lambda s: setattr(s.parameters[1], "grad", s.parameters[1].detach()),
    "another parameter": lambda s: s.parameters.__setitem__(1, s.parameters[2]),
    "data": lambda s: setattr(s.parameters[1], "data", torch.full((2, 3), 9.0)),
    "wrapped": lambda s: setattr(s, "parameters", Step(wraps=True).parameters),
}


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_noticed(change: str, wraps: bool) -> None:
    eager, ours = Step(wraps), Step(wraps)
    compiled = aot_compile(ours.step)
    for number in range(6):
        if number in (2, 4):
            CHANGES[change](eager)
            CHANGES[change](ours)
        eager.step()
        compiled()
        for a, b in zip(eager.parameters + eager.held, ours.parameters + ours.held, strict=True):
            assert torch.equal(a, b), number
            assert (a.grad is None) == (b.grad is None)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[StaticInputCache]:
    """What was read anew, each time."""
    found: list[StaticInputCache] = []
    read = StaticInputCache.read
    monkeypatch.setattr(hooks, "one_call_pays", True)
    monkeypatch.setattr(StaticInputCache, "read", lambda self, leaves: (found.append(self), read(self, leaves))[1])
    return found


def test_other_gradients_are_no_reason_to_read_the_rest(reads: list[StaticInputCache]) -> None:
    ours = Step()
    compiled = aot_compile(ours.step)
    for value in range(5):
        ours.give_gradients(float(value))
        compiled()
    assert len(reads) == 1 and not compiled.recompiles


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_an_optimizer_is_read_once(reads: list[StaticInputCache], make: Any) -> None:
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    optimizer = make(parameters, lr=0.1)
    compiled = aot_compile(optimizer.step)
    for number in range(8):
        if number == 4:
            reads.clear()
        for p in parameters:
            p.grad = torch.full((2,), float(number))
        compiled()
    assert not reads


def double(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    optimizer.param_groups[0]["params"][0].grad.mul_(2)


def test_an_optimizer_that_was_changed_is_read_anew(reads: list[StaticInputCache]) -> None:
    def train(change: bool, compile: bool) -> Any:
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.ones(2)) for _ in range(3)]
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        step = aot_compile(optimizer.step) if compile else optimizer.step
        for number in range(9):
            if change and number == 4:
                optimizer.param_groups[0]["momentum"] = 0.5
            if change and number == 6:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if change and number == 7:
                optimizer.register_step_pre_hook(double)
            for p in parameters:
                p.grad = torch.full((2,), float(number))
            step()
        return parameters

    for change in (False, True):
        assert all(map(torch.equal, train(change, False), train(change, True)))


@pytest.mark.parametrize("wraps", [False, True])
def test_old_gradients_are_let_go(wraps: bool) -> None:
    ours = Step(wraps)
    compiled = aot_compile(ours.step)
    for _ in range(3):
        compiled()
    gc.collect()
    gc.disable()
    try:
        old = [weakref.ref(p.grad) for p in ours.parameters[:3]]
        for p in ours.parameters:
            p.grad = None
        assert [gradient() for gradient in old] == [None] * 3
    finally:
        gc.enable()


def test_one_that_other_objects_hold_too() -> None:
    def program(held: Step) -> Any:
        with torch.no_grad():
            held.held[0].add_(1)
            held.parameters[0].sub_(held.parameters[0].grad)

    eager, ours = Step(), Step()
    compiled = aot_compile(lambda: program(ours))
    for number in range(6):
        for step in (eager, ours):
            if number == 2:
                step.held[0] = step.parameters[0].grad
            if number == 4:
                step.held[0] = step.held[0].clone()
        program(eager)
        compiled()
        assert torch.equal(eager.parameters[0], ours.parameters[0]) and torch.equal(eager.held[0], ours.held[0])
