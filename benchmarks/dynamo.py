"""`torch.compile(backend="subclass_aot")` beside `backend="aot_eager"`: the first call, and later ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

import subclass_aot as sa
from benchmarks.call import COUNTS, double, train
from benchmarks.demo.vit import ViT
from benchmarks.leaves import tree
from benchmarks.row import Result, Target
from benchmarks.torch_side import TwoTensor
from subclass_aot.testing.benchmark import Budget, Side, compare

FIRST = Target.faster(3, "torch.compile, first call of a 12-layer ViT with int8 weights, against aot_eager")
CALL = Target.faster(1.1, "torch.compile, call, against aot_eager")
OURS, TORCHS, ALONE = "subclass_aot", "aot_eager", "eager"


def run(budget: Budget, layers: int = 12, counts: tuple[int, ...] = COUNTS) -> Iterator[Result]:
    """Measures the first call of a ViT with its backward, and calls of `[x * 2 for x in xs]`."""
    model = ViT(image=32, patch=16, layers=layers, width=64, heads=4, hidden=128, classes=10)
    sa.quantize_(model, sa.Int8Weight)
    images = torch.randn(2, 3, 32, 32)
    sides = {backend: Side(_first_call, (model, images, backend)) for backend in (OURS, TORCHS, ALONE)}
    case = f"ViT, {layers} layers, int8 weights"
    others = {TORCHS: FIRST if layers == 12 else None, ALONE: None}
    yield Result("torch.compile, first call", case, compare(sides, budget), OURS, others)
    for count in counts:
        for training in (False, True):
            for name, cls in {"subclass_aot.TwoTensor": sa.TwoTensor, "torch's TwoTensor": TwoTensor}.items():
                torch.compiler.reset()
                xs = tuple(tree(cls, 1).requires_grad_(training) for _ in range(count))
                tangents = tuple(tree(cls, 1) for _ in range(count))
                compiled = {backend: _compiled(backend) for backend in (OURS, TORCHS)}
                calls = {
                    backend: Side(train, (function, xs, tangents)) if training else Side(function, xs)
                    for backend, function in compiled.items()
                }
                subject = "torch.compile, forward + backward" if training else "torch.compile, inference"
                yield Result(subject, f"{count} wrappers, {name}", compare(calls, budget), OURS, {TORCHS: CALL})


def _first_call(model: nn.Module, images: Tensor, backend: str) -> None:
    """Compiles a copy of a model, forward and backward."""
    torch.compiler.reset()
    compiled: Any = torch.compile(copy.deepcopy(model), backend=backend, fullgraph=True)
    compiled(images).sum().backward()


def _compiled(backend: str) -> Callable[..., Any]:
    """The function with code of its own: Dynamo keeps what it compiled by the code, for all backends."""
    code = double.__code__.replace(co_name=f"double_{backend}")
    return torch.compile(FunctionType(code, double.__globals__), backend=backend, fullgraph=True)
