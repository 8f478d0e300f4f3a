"""The first call of what was loaded from a file, beside the first call of what is compiled, and of torch.compile."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import subclass_aot as sa
from benchmarks.demo.vit import ViT
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Side, compare

LOADED, COMPILED, TORCHS = "loaded from a file", "compiled", "torch.compile, aot_eager"
FIRST = Target.faster(1, "first call of a 12-layer ViT with int8 weights from a file, against a trace")


def run(budget: Budget, layers: int = 12) -> Iterator[Result]:
    """Measures the first call of a ViT with int8 weights: inference, and forward with backward."""
    model = ViT(image=32, patch=16, layers=layers, width=64, heads=4, hidden=128, classes=10)
    sa.quantize_(model, sa.Int8Weight)
    images = torch.randn(2, 3, 32, 32)
    with tempfile.TemporaryDirectory() as folder:
        for training in (False, True):
            path = Path(folder) / f"{training}.sa"
            compiled = sa.aot_compile(model)
            _call(compiled, images, training)
            compiled.save(path)
            sides = {
                LOADED: Side(_loaded, (path, model, images, training)),
                COMPILED: Side(_compiled, (model, images, training)),
                TORCHS: Side(_torchs, (model, images, training)),
            }
            case = f"ViT, {layers} layers, int8 weights, {'forward + backward' if training else 'inference'}"
            targets = {COMPILED: FIRST if layers == 12 else None, TORCHS: None}
            yield Result("first call from a file", case, compare(sides, budget), LOADED, targets)


def _call(function: Any, images: Tensor, training: bool) -> None:
    if training:
        function(images).sum().backward()
    else:
        with torch.no_grad():
            function(images)


def _loaded(path: Path, model: nn.Module, images: Tensor, training: bool) -> None:
    own = copy.deepcopy(model)
    _call(sa.load_compiled(path, own, trust=True), images, training)


def _compiled(model: nn.Module, images: Tensor, training: bool) -> None:
    _call(sa.aot_compile(copy.deepcopy(model)), images, training)


def _torchs(model: nn.Module, images: Tensor, training: bool) -> None:
    torch.compiler.reset()
    _call(torch.compile(copy.deepcopy(model), backend="aot_eager", fullgraph=True), images, training)
