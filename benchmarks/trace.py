"""From a program to its joint graph: this library beside `functorch.compile.aot_function`, and with names beside
AOTAutograd's export of a joint graph with descriptors."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

import subclass_aot as sa
from benchmarks import least
from benchmarks.demo.vit import ViT
from benchmarks.leaves import tree
from benchmarks.row import Result, Target
from benchmarks.torch_side import TwoTensor
from subclass_aot.engine.passes import default_partition
from subclass_aot.testing.benchmark import Budget, Comparison, Side, compare

TRACE = Target.faster(10, "joint trace of a 12-layer ViT")
TRACE_AND_PARTITION = Target.faster(6, "joint trace of a 12-layer ViT, partition included")
JOINT, _PARTITIONED, FIRST = "joint trace", "joint trace + partition", "first compile"
AOT = "aot_function, default_partition"

NAMED, NAMED_AND_COMPILED = "trace_joint, names read", "trace_joint + compile_joint"
EXPORT = "aot_export_joint_with_descriptors"
EXPORT_AND_COMPILE = "aot_export_joint_with_descriptors + aot_compile_joint_with_descriptors"


def run(budget: Budget, layers: int = 12, wrappers: int = 50) -> Iterator[Result]:
    """Measures the joint trace of a ViT and of a function of wrappers, alone and with the partition."""
    case, times = vit(budget, layers)
    targets = (TRACE, TRACE_AND_PARTITION) if layers == 12 else (None, None)
    yield from _results(case, times, targets)

    yield from _with_names(budget, layers)

    pairs = tuple(tree(TwoTensor, 1).requires_grad_() for _ in range(wrappers))
    case = f"x.sin() * 2 on {wrappers} of torch's TwoTensor"
    yield from _results(case, _measured(budget, _sines, pairs), (None, None))


@functools.cache
def vit(budget: Budget, layers: int) -> tuple[str, Comparison]:
    """What is traced, and the times of it."""
    model = _model(layers)
    parameters = dict(model.named_parameters())

    def program(parameters: dict[str, Tensor], images: Tensor) -> Any:
        return torch.func.functional_call(model, parameters, (images,))

    arguments = (parameters, torch.randn(2, 3, 32, 32))
    graph = sa.trace_joint(program, *arguments).graph_module.graph
    return f"ViT, {layers} layers", _measured(budget, program, arguments, {least.COPY: Side(least.copied, (graph,))})


def _with_names(budget: Budget, layers: int) -> Iterator[Result]:
    """The joint graph of a module, with names for its inputs and outputs, and that compiled to a function."""
    model, images = _model(layers), torch.randn(2, 3, 32, 32)
    sides = {
        NAMED: Side(_named, (model, images)),
        EXPORT: Side(_exported, (model, images)),
        NAMED_AND_COMPILED: Side(_named_and_compiled, (model, images)),
        EXPORT_AND_COMPILE: Side(_exported_and_compiled, (model, images)),
    }
    times = compare(sides, budget)
    case = f"ViT, {layers} layers, as a module"
    yield Result(NAMED, case, times, NAMED, {EXPORT: None})
    yield Result(NAMED_AND_COMPILED, case, times, NAMED_AND_COMPILED, {EXPORT_AND_COMPILE: None})


def _model(layers: int) -> ViT:
    return ViT(image=32, patch=16, layers=layers, width=64, heads=4, hidden=128, classes=10)


def _named(model: torch.nn.Module, images: Tensor) -> object:
    joint = sa.trace_joint(model, images)
    return joint.inputs, joint.outputs


def _named_and_compiled(model: torch.nn.Module, images: Tensor) -> object:
    """To the result of a first call; the backward is compiled, too."""
    joint = sa.trace_joint(model, images)
    return sa.compile_joint(joint, lazy_backward=False).bind(model)(images)


def _exported(model: torch.nn.Module, images: Tensor) -> object:
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    with contextlib.ExitStack() as stack:
        return aot_export_joint_with_descriptors(stack, model, (images,)).graph_module


def _exported_and_compiled(model: torch.nn.Module, images: Tensor) -> object:
    from torch._functorch.aot_autograd import (
        aot_compile_joint_with_descriptors,
        aot_export_joint_with_descriptors,
    )

    with contextlib.ExitStack() as stack:
        joint = aot_export_joint_with_descriptors(stack, model, (images,))
        compiled = aot_compile_joint_with_descriptors(joint)
    return compiled(*model.parameters(), *model.buffers(), images)


def _sines(*xs: Tensor) -> list[Tensor]:
    return [x.sin() * 2 for x in xs]


def _results(case: str, times: Comparison, targets: tuple[Target | None, Target | None]) -> Iterator[Result]:
    for subject, target in {**dict(zip((JOINT, _PARTITIONED), targets, strict=True)), FIRST: None}.items():
        yield Result(subject, case, times, subject, {AOT: target})


def _measured(
    budget: Budget, program: Callable[..., Any], arguments: tuple[Any, ...], others: Mapping[str, Side] | None = None
) -> Comparison:
    sides = {
        **(others or {}),
        JOINT: Side(sa.trace_joint, (program, *arguments)),
        _PARTITIONED: Side(_trace_and_partition, (program, *arguments)),
        FIRST: Side(_first_compile, (program, *arguments)),
        AOT: Side(_aot_function, (program, *arguments)),
    }
    return compare(sides, budget)


def _trace_and_partition(program: Callable[..., Any], *arguments: Any) -> object:
    trace = sa.trace_joint(program, *arguments)
    return default_partition(trace.graph_module, (), num_fwd_outputs=trace.num_forward_outputs)


def _first_compile(program: Callable[..., Any], *arguments: Any) -> object:
    """The first call of ours, to the last: guards, both graphs and one run of forward."""
    from functorch.compile import nop

    return sa.aot_compile(program, fw_compiler=nop, lazy_backward=False)(*arguments)


def _aot_function(program: Callable[..., Any], *arguments: Any) -> object:
    """The first call: trace, partition, and one run of the forward graph on these small tensors, a hundredth of it."""
    from functorch.compile import aot_function, nop
    from functorch.compile import default_partition as partition_of_torch

    return aot_function(program, fw_compiler=nop, bw_compiler=nop, partition_fn=partition_of_torch)(*arguments)
