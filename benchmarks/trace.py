"""From a program to its joint graph: this library beside `functorch.compile.aot_function`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import subclass_aot as sa
from benchmarks.leaves import tree
from benchmarks.measure import Budget, Side, compare
from benchmarks.row import Result, Target
from benchmarks.torch_side import TwoTensor
from subclass_aot.demo.vit import ViT
from subclass_aot.passes import default_partition

TRACE = Target.faster(10, "joint trace of a 12-layer ViT")
TRACE_AND_PARTITION = Target.faster(6, "joint trace of a 12-layer ViT, partition included")
_AOT = "aot_function, default_partition"


def run(budget: Budget, layers: int = 12, wrappers: int = 50) -> Iterator[Result]:
    """Measures the joint trace of a ViT and of a function of wrappers, alone and with the partition."""
    vit = ViT(image=32, patch=16, layers=layers, width=64, heads=4, hidden=128, classes=10)
    parameters = dict(vit.named_parameters())

    def program(parameters: dict[str, Tensor], images: Tensor) -> Any:
        return torch.func.functional_call(vit, parameters, (images,))

    arguments = (parameters, torch.randn(2, 3, 32, 32))
    targets = (TRACE, TRACE_AND_PARTITION) if layers == 12 else (None, None)
    yield from _results(budget, f"ViT, {layers} layers", program, arguments, targets)

    pairs = tuple(tree(TwoTensor, 1).requires_grad_() for _ in range(wrappers))
    yield from _results(budget, f"x.sin() * 2 on {wrappers} of torch's TwoTensor", _sines, pairs, (None, None))


def _sines(*xs: Tensor) -> list[Tensor]:
    return [x.sin() * 2 for x in xs]


def _results(
    budget: Budget,
    case: str,
    program: Callable[..., Any],
    arguments: tuple[Any, ...],
    targets: tuple[Target | None, Target | None],
) -> Iterator[Result]:
    sides = {
        "joint trace": Side(sa.trace_joint, (program, *arguments)),
        "joint trace + partition": Side(_trace_and_partition, (program, *arguments)),
        _AOT: Side(_aot_function, (program, *arguments)),
    }
    times = compare(sides, budget)
    for subject, target in zip(("joint trace", "joint trace + partition"), targets, strict=True):
        yield Result(subject, case, times, subject, {_AOT: target})


def _trace_and_partition(program: Callable[..., Any], *arguments: Any) -> object:
    trace = sa.trace_joint(program, *arguments)
    return default_partition(trace.graph_module, (), num_fwd_outputs=trace.num_forward_outputs)


def _aot_function(program: Callable[..., Any], *arguments: Any) -> object:
    """The first call: trace, partition, and one run of the forward graph on these small tensors, a hundredth of it."""
    from functorch.compile import aot_function, nop
    from functorch.compile import default_partition as partition_of_torch

    return aot_function(program, fw_compiler=nop, bw_compiler=nop, partition_fn=partition_of_torch)(*arguments)
