"""Programs that look at values: one graph that compares them, beside the two graphs that torch makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import subclass_aot as sa
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Side, compare

SIZES = (8, 64)
_DYNAMO = 'torch.compile(backend="aot_eager")'


def run(budget: Budget, sizes: tuple[int, ...] = SIZES, *, with_dynamo: bool = True) -> Iterator[Result]:
    """Measures `if not x.isfinite().all(): raise`, and a choice whose answer differs from call to call."""
    cases: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
        "one answer": (_refuses, (1.0,)),
        "two answers in turn": (_chooses, (1.0, -1.0)),
    }
    for size in sizes:
        for name, (function, signs) in cases.items():
            xs = [torch.rand(size, size) * sign for sign in signs]
            ways = {"aot_compile": sa.aot_compile(function), "eager": function}
            if with_dynamo:
                torch.compiler.reset()
                ways[_DYNAMO] = torch.compile(function, backend="aot_eager")
            for training in (False, True):
                inputs = [x.requires_grad_(training) for x in xs]
                sides = {way: Side(_train if training else _infer, (f, inputs)) for way, f in ways.items()}
                subject = "look at a value, forward + backward" if training else "look at a value, inference"
                against: dict[str, Target | None] = {"eager": None}
                if with_dynamo:
                    against[_DYNAMO] = Target.faster(1.5, "looks, graph break") if name == "one answer" else None
                times = compare(sides, budget)
                yield Result(subject, f"{size} x {size}, {name}", times, "aot_compile", against)


def _refuses(x: Tensor) -> Tensor:
    if not x.isfinite().all():
        raise ValueError("not finite")
    return (x @ x).relu().sum()


def _chooses(x: Tensor) -> Tensor:
    return (x @ x).relu().sum() if x.sum() > 0 else x.sin().sum()


def _infer(function: Callable[..., Any], xs: list[Tensor]) -> None:
    for x in xs:
        function(x)


def _train(function: Callable[..., Any], xs: list[Tensor]) -> None:
    for x in xs:
        torch.autograd.grad(function(x), x)
