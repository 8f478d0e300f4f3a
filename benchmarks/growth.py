"""How compiling grows with the modules of a network, and a call with the signatures of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

import subclass_aot as sa
from benchmarks.measure import Budget, Side, compare
from benchmarks.row import Result, Target

LINEAR = Target.within(1.3, "first compile, per module, 5,000 modules against 100")
IN_TURNS = Target.within(3, "call, 64 signatures in turns against one")


def run(budget: Budget, modules: tuple[int, int] = (100, 5000), signatures: int = 64) -> Iterator[Result]:
    """Measures the first call of a network of linear layers, per layer, and calls of all signatures in turns."""
    x = torch.randn(1, 2)
    few, many = (f"{count:,} modules" for count in modules)
    networks = [nn.Sequential(*(nn.Linear(2, 2) for _ in range(count))) for count in modules]
    sides = {
        name: Side(_compile, (network, x), len(network)) for name, network in zip((few, many), networks, strict=True)
    }
    yield Result("first compile, per module", many, compare(sides, budget), many, {few: LINEAR})

    compiled = sa.aot_compile(lambda x: x * 2, dynamic=False)
    xs = [torch.randn(i + 1) for i in range(signatures)]
    for each in xs:
        compiled(each)
    sides = {
        "in turns": Side(_call_all, (compiled, xs), signatures),
        "one": Side(_call_all, (compiled, [xs[-1]] * signatures), signatures),
    }
    yield Result("call", f"{signatures} signatures in turns", compare(sides, budget), "in turns", {"one": IN_TURNS})


def _compile(network: nn.Module, x: Tensor) -> object:
    return sa.aot_compile(network)(x)


def _call_all(compiled: Callable[[Tensor], Tensor], xs: Sequence[Tensor]) -> None:
    for x in xs:
        compiled(x)
