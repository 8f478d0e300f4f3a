"""A compiled function inside `torch.func.grad` and `vmap`, beside the function itself and compiled transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import subclass_aot as sa
from benchmarks.demo.vit import ViT
from benchmarks.row import Result
from subclass_aot.benchmark import Budget, Side, compare

OURS, ITSELF, TORCHS, WHOLE = "compiled inside", "not compiled", "aot_eager of the transform", "compiled transform"


def run(budget: Budget, layers: int = 4) -> Iterator[Result]:
    """Measures gradients of a ViT with int8 weights by its images, one image at a time and all together."""
    model = ViT(image=32, patch=16, layers=layers, width=64, heads=4, hidden=128, classes=10).requires_grad_(False)
    sa.quantize_(model, sa.Int8Weight)
    images = torch.randn(4, 1, 3, 32, 32)
    transforms: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "grad": (lambda f: torch.func.grad(lambda x: f(x).square().sum()), images[0]),
        "vmap": (torch.func.vmap, images),
        "vmap of grad": (lambda f: torch.func.vmap(torch.func.grad(lambda x: f(x).square().sum())), images),
    }
    for name, (transform, given) in transforms.items():
        torch.compiler.reset()
        compiled = sa.aot_compile(model)
        sides = {
            OURS: Side(transform(compiled), (given,)),
            ITSELF: Side(transform(model), (given,)),
            TORCHS: Side(torch.compile(transform(model), backend="aot_eager"), (given,)),
            WHOLE: Side(sa.aot_compile(transform(model)), (given,)),
        }
        case = f"ViT, {layers} layers, int8 weights"
        yield Result(
            f"{name} around a compiled module",
            case,
            compare(sides, budget),
            OURS,
            dict.fromkeys([ITSELF, TORCHS, WHOLE]),
        )
