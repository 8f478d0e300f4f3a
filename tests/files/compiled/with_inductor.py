"""Compiles with inductor, or loads what was; each in a process of its own.

python -m tests.files.compiled.with_inductor save|load FOLDER static|dynamic
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

import subclass_aot as sa


class Model(nn.Module):
    """A linear layer with int8 weights, what inductor decomposes (gelu), and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(torch.nn.functional.gelu(self.linear(x)))


def run(compiled: Any, x: Tensor) -> list[Tensor]:
    """A step of training, and inference."""
    torch.manual_seed(3)
    result = compiled(x)
    result.sum().backward()
    with torch.no_grad():
        return [result.detach(), x.grad, compiled(x)]


def main(what: str, folder: str, sizes: str) -> None:
    """Saves, or loads and compares, and says what inductor did."""
    from torch._dynamo.utils import counters
    from torch._inductor.cpp_builder import CppBuilder

    torch.manual_seed(0)
    model = Model()
    sa.quantize_(model, sa.Int8Weight)
    x = torch.randn(4, 8, requires_grad=True)
    if what == "save":
        dynamic = True if sizes == "dynamic" else None
        compiled: Any = sa.aot_compile(model, fw_compiler="inductor", dynamic=dynamic)
        torch.save(run(compiled, x), f"{folder}/results.pt")
        compiled.save(f"{folder}/model.sa")
        print(f"{counters['inductor']['fxgraph_cache_miss']} compiled")
        return
    built = 0
    build = CppBuilder.build

    def counting(self: CppBuilder) -> None:
        nonlocal built
        built += 1
        build(self)

    CppBuilder.build = counting
    found = run(sa.load_compiled(f"{folder}/model.sa", model, trust=True), x)
    expected = torch.load(f"{folder}/results.pt")
    print("equal" if all(map(torch.equal, found, expected)) else "different")
    counted = counters["inductor"]
    print(f"{counted['fxgraph_cache_miss']} compiled, {counted['fxgraph_cache_hit']} found, {built} libraries built")


if __name__ == "__main__":
    main(*sys.argv[1:])
