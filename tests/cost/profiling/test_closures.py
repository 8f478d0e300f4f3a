"""What a step closes over costs what it costs as an argument, and nothing of it changes."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.errors import ProfileError


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    return model, torch.optim.AdamW(model.parameters())


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


MODEL, OPTIMIZER = made()
X = torch.randn(32, 64)


class Trainer:
    def __init__(self) -> None:
        self.model, self.optimizer = made()
        self.lock = threading.Lock()

    def step(self, x: torch.Tensor) -> None:
        step(self.model, self.optimizer, x)

    def with_model(self, model: nn.Module, x: torch.Tensor) -> None:
        step(model, self.optimizer, x)

    __call__ = step


def of_globals(x: torch.Tensor) -> None:
    step(MODEL, OPTIMIZER, x)


def of_one_global(model: nn.Module, x: torch.Tensor) -> None:
    step(model, OPTIMIZER, x)


def through_helpers(x: torch.Tensor) -> None:
    def inner() -> None:
        of_globals(x)

    inner()


@torch.enable_grad()
def decorated(model: nn.Module, x: torch.Tensor) -> None:
    of_one_global(model, x)


def in_a_closure() -> tuple[Any, ...]:
    model, optimizer = made()
    return (lambda x: step(model, optimizer, x)), X


def with_the_model() -> tuple[Any, ...]:
    model, optimizer = made()
    return (lambda model, x: step(model, optimizer, x)), model, X


def with_a_default() -> tuple[Any, ...]:
    model, optimizer = made()

    def stepping(x: torch.Tensor, model: Any = model, *, optimizer: Any = optimizer) -> None:
        step(model, optimizer, x)

    return stepping, X


def recursive() -> tuple[Any, ...]:
    model, optimizer = made()

    def stepping(x: torch.Tensor, times: int = 1) -> None:
        stepping(x, times - 1) if times else step(model, optimizer, x)

    return stepping, X


def with_a_schedule(by_closure: bool) -> tuple[Any, ...]:
    """The scheduler replaces the method by which the optimizer steps."""
    model, optimizer = made()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def stepping(x: torch.Tensor, model: Any = model, optimizer: Any = optimizer) -> None:
        step(model, optimizer, x)
        schedule.step()

    return (stepping, X) if by_closure else (stepping, X, model, optimizer)


def of_a_method() -> tuple[Any, ...]:
    trainer = Trainer()
    return trainer.with_model, trainer.model, X


def in_a_dict() -> tuple[Any, ...]:
    model, optimizer = made()
    state = {"model": [model], "optimizer": (optimizer,)}
    return (lambda x: step(state["model"][0], state["optimizer"][0], x)), X


PROGRAMS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "a closure": in_a_closure,
    "a closure, and the model": with_the_model,
    "globals": lambda: (of_globals, X),
    "a global, and the model": lambda: (of_one_global, MODEL, X),
    "through helpers": lambda: (through_helpers, X),
    "decorated": lambda: (decorated, MODEL, X),
    "a default": with_a_default,
    "recursive": recursive,
    "a partial call": lambda: (functools.partial(step, MODEL, x=X, optimizer=OPTIMIZER),),
    "a partial call of a closure": lambda: (functools.partial(in_a_closure()[0], X),),
    "a method": lambda: (Trainer().step, X),
    "a method, and the model": of_a_method,
    "an object that is called": lambda: (Trainer(), X),
    "an object that is passed": lambda: ((lambda trainer, x: trainer.step(x)), Trainer(), X),
    "a function that is passed": lambda: ((lambda function, x: function(x)), of_globals, X),
    "a dict": in_a_dict,
    "a schedule": lambda: with_a_schedule(False),
    "a schedule that is closed over": lambda: with_a_schedule(True),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_costs_what_it_costs_as_an_argument(name: str) -> None:
    expected = sa.profile(step, *made(), X)
    program, *args = PROGRAMS[name]()
    report = sa.profile(program, *args)
    assert report.peak == expected.peak and report.flops() == expected.flops()
    assert report.parameters == expected.parameters
    assert report.owners("kind") == expected.owners("kind")
    assert not OPTIMIZER.state and all(p.grad is None for p in MODEL.parameters())


def test_what_is_no_training_stays_what_it_is() -> None:
    """Values of constants are known, and a frozen model is part of the program."""
    table = torch.tensor([0.5, 2.0])
    calls: list[int] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2 if table[1].item() > 1 else x.exp()

    assert sa.profile(program, X).flops() == 0
    assert calls == [1]


def test_the_largest_batch_of_a_closure() -> None:
    program, x = in_a_closure()
    found = sa.profile(step, *made(), X).largest_batch("1MiB")
    assert sa.profile(program, x).largest_batch("1MiB") == found and not found.untried


def test_a_closure_runs_on_real_tensors() -> None:
    program, x = in_a_closure()
    assert sa.profile(program, x).check()


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * HIDDEN.weight


HIDDEN = Hidden()


def test_what_is_not_copied_with_it_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"Parameter\(\[3\], float32\)(.|\n)*HIDDEN.weight(.|\n)*pass what holds"):
        sa.profile(HIDDEN, X[:, :3])


def in_a_default(model: nn.Sequential, pair: nn.Module) -> None:
    model[0].register_forward_hook(lambda module, args, y, pair=pair: y + pair(args[0]))


def in_a_cell(model: nn.Sequential, pair: nn.Module) -> None:
    model[0].register_forward_hook(lambda module, args, y: y + pair(args[0]))


def in_a_partial(model: nn.Sequential, pair: nn.Module) -> None:
    model[0].register_forward_pre_hook(functools.partial(beside, pair))


def beside(pair: nn.Module, module: nn.Module, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return args[0] + pair(args[0])[:, :64]


def in_a_forward(model: nn.Sequential, pair: nn.Module) -> None:
    before = model[0].forward
    model[0].forward = lambda x: before(x) + pair(x)  # type: ignore[method-assign]


@pytest.mark.parametrize("joined", [in_a_default, in_a_cell, in_a_partial, in_a_forward])
def test_hooks_of_modules_lead_to_parameters(joined: Callable[[nn.Sequential, nn.Module], None]) -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).requires_grad_(False)
    pair = nn.Sequential(nn.Linear(64, 8, bias=False), nn.Linear(8, 128, bias=False))
    joined(model, pair)
    both = nn.ModuleList([model, pair])

    def program(both: Any, optimizer: torch.optim.Optimizer) -> None:
        step(both[0], optimizer, X)

    check = sa.profile(program, both, torch.optim.SGD(pair.parameters(), 1e-3)).check()
    assert check and abs(check.peak_error) < 0.001 and check.predicted.gradients == 4 * 8 * (64 + 128)
