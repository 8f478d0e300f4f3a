"""How compiling grows with the modules of a network, and a call with the signatures of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

import subclass_aot as sa
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Comparison, Side, compare

LINEAR = Target.within(1.3, "first compile, per module, 5,000 modules against 100")
IN_TURNS = Target.within(3, "call, 64 signatures in turns against one")


def run(budget: Budget, modules: tuple[int, int] = (100, 5000), signatures: int = 64) -> Iterator[Result]:
    """Measures the first call of a network of linear layers, per layer, and calls of all signatures in turns."""
    few, many = (f"{count:,} modules" for count in modules)
    yield Result("first compile, per module", many, _per_module(budget, modules), many, {few: LINEAR})
    times = _signatures(budget, signatures)
    yield Result("call", f"{signatures} signatures in turns", times, "in turns", {"one": IN_TURNS})


@functools.cache
def _per_module(budget: Budget, modules: tuple[int, int]) -> Comparison:
    x = torch.randn(1, 2)
    networks = [nn.Sequential(*(nn.Linear(2, 2) for _ in range(count))) for count in modules]
    sides = {f"{len(network):,} modules": Side(_compile, (network, x), len(network)) for network in networks}
    return compare(sides, budget)


@functools.cache
def _signatures(budget: Budget, signatures: int) -> Comparison:
    compiled = sa.aot_compile(lambda x: x * 2, dynamic=False)
    xs = [torch.randn(i + 1) for i in range(signatures)]
    for each in xs:
        compiled(each)
    sides = {
        "in turns": Side(_call_all, (compiled, xs), signatures),
        "one": Side(_call_all, (compiled, [xs[-1]] * signatures), signatures),
    }
    return compare(sides, budget)


def _compile(network: nn.Module, x: Tensor) -> object:
    return sa.aot_compile(network)(x)


def _call_all(compiled: Callable[[Tensor], Tensor], xs: Sequence[Tensor]) -> None:
    for x in xs:
        compiled(x)
