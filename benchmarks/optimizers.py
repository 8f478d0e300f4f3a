"""A step of torch's optimizers that was compiled by "eager", beside the same step in eager mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import optim

import subclass_aot as sa
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Side, compare

STEP = Target.within(1, "optimizer step, eager mode")
COUNTS = (10, 100, 1000)
SIZE = (8, 8)

Make = Callable[..., optim.Optimizer]
FUSED = {"fused": True}
WAYS: Mapping[str, Mapping[str, Any]] = {"plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": FUSED}
OPTIMIZERS: Mapping[str, tuple[Make, Mapping[str, Any]]] = {
    "SGD": (optim.SGD, {"lr": 1e-3}),
    "SGD, momentum": (optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
    "Adam": (optim.Adam, {"lr": 1e-3}),
    "AdamW": (optim.AdamW, {"lr": 1e-3}),
    "AdamW, amsgrad": (optim.AdamW, {"lr": 1e-3, "amsgrad": True}),
    "Adagrad": (optim.Adagrad, {"lr": 1e-3}),
    "RMSprop": (optim.RMSprop, {"lr": 1e-3}),
    "Adadelta": (optim.Adadelta, {"lr": 1e-3}),
    "Adamax": (optim.Adamax, {"lr": 1e-3}),
    "NAdam": (optim.NAdam, {"lr": 1e-3}),
    "RAdam": (optim.RAdam, {"lr": 1e-3}),
    "ASGD": (optim.ASGD, {"lr": 1e-3}),
    "Rprop": (optim.Rprop, {"lr": 1e-3}),
}
"""How each is made; those whose `fused` torch has on this device are measured so, too."""
HAVE_FUSED = {"SGD", "SGD, momentum", "Adam", "AdamW", "AdamW, amsgrad", "Adagrad"}
WARM_UP = 4
"""Calls after which every state is there, and nothing is compiled any more."""


def run(budget: Budget, counts: tuple[int, ...] = COUNTS, only: tuple[str, ...] = ()) -> Iterator[Result]:
    """Measures a step of each optimizer, in each of the ways in which torch runs it, over parameters of 8 by 8."""
    for count in counts:
        for name in only or OPTIMIZERS:
            for way, options in WAYS.items():
                if way != "fused" or name in HAVE_FUSED:
                    times = compare(_sides(name, options, count), budget)
                    yield Result(
                        "optimizer step", f"{name}, {way}, {count} parameters", times, "aot_compile", {"eager": STEP}
                    )


def _sides(name: str, options: Mapping[str, Any], count: int) -> dict[str, Side]:
    make, own = OPTIMIZERS[name]
    ways: dict[str, Callable[[Any], Any]] = {"aot_compile": sa.aot_compile, "eager": lambda step: step}
    sides = {}
    for side, compile_it in ways.items():
        parameters = [torch.randn(SIZE).requires_grad_() for _ in range(count)]
        for parameter in parameters:
            parameter.grad = torch.randn(SIZE)
        step = compile_it(make(parameters, **own, **options).step)
        for _ in range(WARM_UP):
            step()
        sides[side] = Side(step)
    return sides
