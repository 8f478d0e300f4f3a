"""What compiling costs: a call, the trace of ViT-B/16, and ViT-B/16 on a batch that no machine could hold."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import subclass_aot as sa
from benchmarks.demo.vit import ViT


@dataclass(frozen=True)
class TraceCost:
    """One joint trace: how long it took, and how many nodes its graph has."""

    milliseconds: float
    nodes: int


def trace_vit(vit: nn.Module, images: Tensor) -> tuple[TraceCost, TraceCost]:
    """Traces the joint graph of a model with this library and with `functorch.compile.aot_function`.

    Args:
        vit: The model.
        images: What to trace it with.

    Returns:
        The cost for this library, then for `aot_function` up to its call of `default_partition`. Each traces twice, and
        the second one counts.
    """
    parameters = dict(vit.named_parameters())

    def program(parameters: dict[str, Tensor], images: Tensor) -> Any:
        return torch.func.functional_call(vit, parameters, (images,))

    for _ in range(2):
        start = time.perf_counter()
        joint = sa.trace_joint(program, parameters, images)
        ours = TraceCost(_milliseconds_since(start), len(joint.graph_module.graph.nodes))
        theirs = _aot_function_trace(program, parameters, images)
    return ours, theirs


def _aot_function_trace(program: Callable[..., Any], *args: Any) -> TraceCost:
    from functorch.compile import aot_function, default_partition, nop

    costs: list[TraceCost] = []

    def partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        costs.append(TraceCost(_milliseconds_since(start), len(joint.graph.nodes)))
        return default_partition(joint, *args, **kwargs)

    start = time.perf_counter()
    aot_function(program, fw_compiler=nop, partition_fn=partition)(*args)
    return costs[0]


@dataclass(frozen=True)
class CallCost:
    """Microseconds per call of one small function on some number of wrapper tensors, by way of calling it."""

    wrappers: int
    microseconds: Mapping[str, float]


def call_cost(count: int, repeats: int = 100) -> CallCost:
    """Measures `[x * 2 for x in xs]` on `TwoTensor`s of `float32[4, 4]`: nearly all of it is overhead.

    Args:
        count: How many wrappers to pass.
        repeats: How many calls the median is taken of; the ways of calling take turns.

    Returns:
        The cost. `"dense"` is the same work on the inner tensors, without any wrapper. `"aot_function"` is called as it
        is: it does not look whether its arguments are still those it was compiled for.
    """
    from functorch.compile import aot_function, make_boxed_func

    def double(*xs: Tensor) -> list[Tensor]:
        return [x * 2 for x in xs]

    leaves = [torch.randn(4, 4) for _ in range(2 * count)]
    wrappers = [sa.TwoTensor(a, b) for a, b in zip(leaves[::2], leaves[1::2], strict=True)]
    ours = sa.aot_compile(double, fw_compiler="eager")
    theirs = aot_function(double, fw_compiler=lambda graph, _: make_boxed_func(graph.forward))
    ways: dict[str, Callable[[], object]] = {
        "eager": lambda: double(*wrappers),
        "aot_function": lambda: theirs(*wrappers),
        "aot_compile": lambda: ours(*wrappers),
        "dense": lambda: double(*leaves),
    }
    return CallCost(count, _medians_us(ways, repeats))


def meta_vit(batch: int, repeats: int = 3) -> tuple[float, float]:
    """Runs ViT-B/16 forward and backward on tensors without data.

    Args:
        batch: Images in the batch.
        repeats: How many runs the median is taken of, after a first one.

    Returns:
        Milliseconds with `MetaTensor`, then with plain `device="meta"` tensors.
    """
    with torch.device("meta"):
        plain, ours = ViT(), ViT()
        images = torch.empty(batch, 3, 224, 224)
    ours = sa.to_meta(ours)

    def train(model: nn.Module, images: Tensor) -> None:
        model.zero_grad()
        model(images).sum().backward()

    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: train(ours, sa.MetaTensor(images)),
        "plain": lambda: train(plain, images),
    }
    medians = _medians_us(ways, repeats)
    return medians["ours"] / 1e3, medians["plain"] / 1e3


def _medians_us(ways: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median microseconds of each callable, called in turns without cycle collection, after one call each."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    collects = gc.isenabled()
    gc.disable()
    try:
        for run in range(repeats + 1):
            for name, call in ways.items():
                start = time.perf_counter()
                call()
                if run:
                    seconds[name].append(time.perf_counter() - start)
    finally:
        if collects:
            gc.enable()
    return {name: statistics.median(taken) * 1e6 for name, taken in seconds.items()}


def _milliseconds_since(start: float) -> float:
    return (time.perf_counter() - start) * 1e3
