"""Graphs that compute nothing: what is left of a call is bookkeeping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from functorch.compile import aot_function
from torch import Tensor, fx

import subclass_aot as sa
from benchmarks import torch_side
from benchmarks.call import double

OURS, AOT_FUNCTION, DYNAMO, BARE = "aot_compile", "aot_function", "torch.compile", "autograd.Function, dense"


def compiler(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
    """Compiles any graph to a function that gives back its inputs.

    Raises:
        ValueError: The graph has not as many results as inputs, so its inputs cannot stand for them.
    """
    results: Any = graph.graph.output_node().args[0]
    if len(results) != len(example_inputs):
        raise ValueError(f"{len(example_inputs)} inputs cannot stand for {len(results)} results")

    def give_back(inputs: list[Any]) -> list[Any]:
        given = list(inputs)
        inputs.clear()  # as compiled code does, which lets go of what it has read
        return given

    give_back._boxed_call = True  # type: ignore[attr-defined]
    return give_back


def ways(*, with_dynamo: bool) -> dict[str, Callable[..., Any]]:
    """`double`, compiled in each way with null graphs, anew."""
    made: dict[str, Callable[..., Any]] = {
        OURS: sa.aot_compile(double, fw_compiler=compiler),
        AOT_FUNCTION: aot_function(double, fw_compiler=compiler, bw_compiler=compiler),
    }
    if with_dynamo:
        torch.compiler.reset()
        made[DYNAMO] = torch.compile(double, backend=torch_side.backend_of(compiler), fullgraph=True)
    return made


class Bare(torch.autograd.Function):
    """Gives back what it is given, and so do its gradients: the least that autograd asks of any compiled function."""

    @staticmethod
    def forward(ctx: Any, *xs: Tensor) -> tuple[Tensor, ...]:
        """Gives back the inputs; autograd makes a view of each."""
        return xs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        """Gives back the gradients."""
        return gradients
