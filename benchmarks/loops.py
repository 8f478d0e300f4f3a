"""Functions of many small operators on dense tensors: what the backend "eager" adds to torch's eager mode, or saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import subclass_aot as sa
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Side, compare

STEPS = (100, 400)


def run(budget: Budget, steps: tuple[int, ...] = STEPS, hidden: int = 64) -> Iterator[Result]:
    """Measures a loop that fills a tensor row by row, and recurrent layers: inference, and forward with backward."""
    for count in steps:
        arguments = torch.randn(count, 16), torch.randn(16)
        yield from _both(f"{count} rows written one by one", _rows, arguments, [], budget)
    for cls in (nn.LSTM, nn.GRU):
        layer: Any = cls(32, hidden)
        case = f"{cls.__name__}(32, {hidden}), 32 steps"
        yield from _both(case, layer, (torch.randn(32, 8, 32),), list(layer.parameters()), budget)


def _rows(x: Tensor, w: Tensor) -> tuple[Tensor]:
    out = torch.zeros_like(x)
    for t in range(x.shape[0]):
        out[t] = torch.tanh(x[t] * w)
    return (out,)


def _both(
    case: str, function: Callable[..., Any], arguments: tuple[Tensor, ...], weights: list[Tensor], budget: Budget
) -> Iterator[Result]:
    ways: dict[str, Callable[..., Any]] = {"aot_compile": sa.aot_compile(function), "eager": function}
    for training in (False, True):
        xs = tuple(x.detach().requires_grad_(training and not weights) for x in arguments)
        work = _train if training else _infer
        sides = {way: Side(work, (f, xs, weights or list(xs))) for way, f in ways.items()}
        subject = "loop, forward + backward" if training else "loop, inference"
        target = {"eager": Target.within(1.3, "operators, eager") if training else None}
        yield Result(subject, case, compare(sides, budget), "aot_compile", target)


def _infer(function: Callable[..., Any], xs: tuple[Tensor, ...], weights: list[Tensor]) -> object:
    with torch.no_grad():
        return function(*xs)


def _train(function: Callable[..., Any], xs: tuple[Tensor, ...], weights: list[Tensor]) -> object:
    return torch.autograd.grad(function(*xs)[0].sum(), weights)
