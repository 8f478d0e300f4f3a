"""A whole call of a compiled function: guards, unwrap, graph, wrap, autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import subclass_aot as sa
from benchmarks.leaves import tree
from benchmarks.row import Result
from benchmarks.torch_side import TwoTensor
from subclass_aot.testing.benchmark import Budget, Side, compare

COUNTS = (1, 10, 100)
_OTHERS = ("aot_function", 'torch.compile(backend="aot_eager")', "eager")


def run(budget: Budget, counts: tuple[int, ...] = COUNTS, *, with_dynamo: bool = True) -> Iterator[Result]:
    """Measures `[x * 2 for x in xs]`, nearly all of which is overhead: inference, and forward with backward."""
    classes = {"subclass_aot.TwoTensor": sa.TwoTensor, "torch's TwoTensor": TwoTensor}
    others = [other for other in _OTHERS if with_dynamo or not other.startswith("torch.compile")]
    for count in counts:
        for training in (False, True):
            for name, cls in classes.items():
                xs = tuple(tree(cls, 1).requires_grad_(training) for _ in range(count))
                ways: dict[str, Callable[..., Any]] = {"aot_compile": sa.aot_compile(double)}
                ways |= {other: _WAYS[other]() for other in others}
                tangents = tuple(tree(cls, 1) for _ in range(count))
                sides = {
                    way: Side(train, (function, xs, tangents)) if training else Side(function, xs)
                    for way, function in ways.items()
                }
                subject = "call, forward + backward" if training else "call, inference"
                times = compare(sides, budget)
                yield Result(subject, f"{count} wrappers, {name}", times, "aot_compile", dict.fromkeys(others))


def double(*xs: Tensor) -> list[Tensor]:
    """Nearly all overhead."""
    return [x * 2 for x in xs]


def train(function: Callable[..., Any], xs: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> object:
    """Forward and backward."""
    return torch.autograd.grad(function(*xs), xs, tangents)


def accumulate(function: Callable[..., Any], xs: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> None:
    """Forward, and backward into `.grad`, which nobody has before."""
    torch.autograd.backward(function(*xs), tangents)
    for x in xs:
        x.grad = None


def _aot_function() -> Callable[..., Any]:
    from functorch.compile import aot_function, make_boxed_func

    compiled: Callable[..., Any] = aot_function(double, fw_compiler=lambda graph, _: make_boxed_func(graph.forward))
    return compiled


def _dynamo() -> Callable[..., Any]:
    torch.compiler.reset()
    return torch.compile(double, backend="aot_eager", fullgraph=True)


_WAYS: dict[str, Callable[[], Callable[..., Any]]] = dict(
    zip(_OTHERS, (_aot_function, _dynamo, lambda: double), strict=True)
)
