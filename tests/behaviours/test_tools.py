"""Tools of torch around a training step, inside of what is compiled: they say what they say in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.module_tracker import ModuleTracker

from subclass_aot import aot_compile

Step = Callable[[torch.Tensor], Any]


class Calls(TorchFunctionMode):
    """Counts functions of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **kwargs or {})


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def within(make: Callable[[nn.Module], Any], told: Callable[[Any], Any] = lambda tool: None) -> Callable[..., Step]:
    """Makes a step that runs within a tool."""

    def of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
        def step(x: torch.Tensor) -> Any:
            with make(model) as tool:
                loss = trained(model, optimizer, x)
            return loss, told(tool)

        return step

    return of


def tracked(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def step(x: torch.Tensor) -> Any:
        with ModuleTracker() as tracker:
            names: list[str] = []
            hook = model[1].register_forward_hook(lambda *_: names.extend(sorted(tracker.parents)))  # type: ignore[index]
            loss = trained(model, optimizer, x)
            hook.remove()
        return loss, names

    return step


def scaled(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    scaler = torch.amp.GradScaler("cpu")

    def step(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach(), norm

    return step


def averaged(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    average = torch.optim.swa_utils.AveragedModel(model)

    def step(x: torch.Tensor) -> Any:
        loss = trained(model, optimizer, x)
        average.update_parameters(model)
        return loss, [p.detach().clone() for p in average.parameters()]

    return step


def scheduled(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)

    def step(x: torch.Tensor) -> Any:
        loss = trained(model, optimizer, x)
        scheduler.step()
        return loss, scheduler.get_last_lr()

    return step


def same(one: Any, other: Any) -> None:
    """Asserts that what tools say is the same, and tensors are close."""
    if isinstance(one, tuple | list):
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other)
    else:
        assert one == other


TOOLS: dict[str, Callable[..., Step]] = {
    "flop counter": within(lambda m: FlopCounterMode(display=False), lambda t: t.get_total_flops()),
    "flop counter by module": within(lambda m: FlopCounterMode(m, display=False), lambda t: t.get_total_flops()),
    "module tracker": tracked,
    "profiler": within(lambda m: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])),
    "profiler of autograd": within(lambda m: torch.autograd.profiler.profile()),
    "record_function": within(lambda m: torch.profiler.record_function("step")),
    "anomaly": within(lambda m: torch.autograd.detect_anomaly()),
    "mode of functions": within(lambda m: Calls(), lambda t: t.count > 0),
    "saved on the CPU": within(lambda m: torch.autograd.graph.save_on_cpu()),
    "grad scaler": scaled,
    "averaged model": averaged,
    "scheduler": scheduled,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", TOOLS)
def test_a_training_step_with_a_tool_inside(tool: str) -> None:
    def run(wrap: Callable[[Step], Step]) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        step = wrap(TOOLS[tool](model, torch.optim.AdamW(model.parameters())))
        results = [step(torch.full((3, 4), i + 1.0)) for i in range(3)]
        return results, [p.detach().clone() for p in model.parameters()]

    same(run(aot_compile), run(lambda step: step))


@pytest.mark.filterwarnings("ignore")
def test_a_flop_counter_around_what_is_compiled() -> None:
    model, x = nn.Linear(4, 8), torch.ones(3, 4)
    counts = []
    for function in (model, aot_compile(model)):
        function(x)  # which compiles
        with FlopCounterMode(display=False) as counter:
            function(x).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0
