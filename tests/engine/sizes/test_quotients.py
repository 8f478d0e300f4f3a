"""What a program computes of sizes is a node, quotients and roundings too: one compilation for all sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from subclass_aot import aot_compile

NUMBERS: dict[str, Callable[[Any], Any]] = {
    "a quotient": lambda n: n / 3,
    "by a size": lambda n: n / (n - 1),
    "a reciprocal": lambda n: 1 / n,
    "a root": lambda n: n**-0.5,
    "a product": lambda n: n * 1.5,
    "a square": lambda n: n**2 / 4,
    "a remainder": lambda n: (n % 3) / 2,
    "a floored quotient": lambda n: n // 0.5,
    "floor": lambda n: math.floor(n / 2),
    "ceil": lambda n: math.ceil(n / 2),
    "trunc": lambda n: math.trunc(n / 2),
    "round": lambda n: round(n / 4),
    "a maximum": lambda n: max(n, 3) / 2,
    "a distance": lambda n: abs(n - 7) / 2,
    "shifted": lambda n: (n << 1) / 3,
    "bits": lambda n: (n & 3) / 2,
}
OF_CALLS: dict[str, Callable[[Any], Any]] = {
    "math.sqrt": math.sqrt,
    "float": float,
    "int": lambda n: int(n * 0.5),
}
"""Those that Dynamo replaces; where Python calls them they read the number, and each size is compiled."""


def counting(count: list[int]) -> Callable[..., Any]:
    def compiler(graph_module: fx.GraphModule, examples: Any) -> Any:
        count[0] += 1
        return graph_module

    return compiler


def step(function: Callable[[Tensor], Tensor], size: int) -> tuple[Tensor, Tensor | None]:
    x = torch.randn(size, 3, generator=torch.Generator().manual_seed(size)).requires_grad_()
    result = function(x)
    result.square().sum().backward()
    return result, x.grad


@pytest.mark.parametrize(
    ("number", "door"),
    [
        *((number, "aot_compile") for number in NUMBERS),
        *((number, "torch.compile") for number in {**NUMBERS, **OF_CALLS}),
    ],
)
def test_one_compilation(number: str, door: str, fresh_dynamo: None) -> None:
    of_size = {**NUMBERS, **OF_CALLS}[number]
    count = [0]
    options = {"fw_compiler": counting(count), "bw_compiler": counting(count)}
    scaled = lambda x: x * of_size(x.shape[0]) + of_size(x.shape[0])  # noqa: E731
    compiled = (
        aot_compile(scaled, dynamic=True, **options)
        if door == "aot_compile"
        else torch.compile(scaled, backend="subclass_aot", dynamic=True, options=options)
    )
    for size in (5, 6, 9):
        torch.testing.assert_close(step(compiled, size), step(scaled, size))
    assert count == [2]


@pytest.mark.parametrize(
    "layer",
    [lambda: nn.BatchNorm1d(3), lambda: nn.InstanceNorm1d(3), lambda: nn.GroupNorm(1, 3)],
    ids="batch instance group".split(),
)
@pytest.mark.filterwarnings("ignore")
def test_layers_by_inductor_compile_once(layer: Callable[[], nn.Module]) -> None:
    """Inductor's forms of operators compute with sizes: the variance of a batch is scaled by n / (n - 1)."""
    module = layer()
    compiled = aot_compile(lambda x: module(x[None].mT), fw_compiler="inductor", dynamic=True)
    for size in (5, 6, 9):
        compiled(torch.randn(size, 3))
    assert not compiled.recompiles
