"""Kernels' own memory, where it is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import subclass_aot as sa
from subclass_aot.cost.profiling.allocator import real_peak

PROGRAMS: dict[str, tuple[Callable[..., torch.Tensor], list[torch.Tensor]]] = {
    "expanded": (torch.mm, [torch.ones(1, 1).expand(200, 300), torch.randn(300, 100)]),
    "both": (torch.mm, [torch.randn(400, 600)[::2, ::2], torch.randn(600, 200)[::2, ::2]]),
    "transposed": (torch.mm, [torch.randn(300, 200).t(), torch.randn(300, 100)]),
    "rows": (torch.mm, [torch.randn(400, 300)[::2], torch.randn(300, 100)]),
    "added": (torch.addmm, [torch.randn(100), torch.ones(1, 1).expand(200, 300), torch.randn(300, 100)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_take_what_the_allocator_says(name: str) -> None:
    program, args = PROGRAMS[name]
    base = sum(x.untyped_storage().nbytes() for x in args)
    assert sa.profile(program, *args).peak == pytest.approx(real_peak(lambda: program(*args), base), rel=0.005)


MASK, SHORT = torch.rand(64, 1000) > 0.5, torch.randn(64, 1000).bfloat16()
REDUCTIONS: dict[str, tuple[Callable[..., torch.Tensor], torch.Tensor]] = {
    "a mask": (torch.sum, MASK),
    "a mask, in rows": (lambda x: x.sum(-1, dtype=torch.float32), MASK),
    "short numbers": (lambda x: x.sum(-1), SHORT),
    "short numbers, in float32": (lambda x: x.sum(-1, dtype=torch.float32), SHORT),
    "a mean": (torch.mean, SHORT),
    "a product": (torch.prod, MASK),
    "positions": (lambda x: x.cumsum(1), MASK),
    "a norm": (lambda x: torch.linalg.vector_norm(x, 2, 1, dtype=torch.float32), SHORT),
    "a check": (torch.all, SHORT),
    "a check of a mask": (torch.any, MASK),
    "exponentials": (lambda x: x.logsumexp(1), torch.randn(64, 1000)),
    "rows that may be all -inf": (
        lambda x: torch.ops.aten._safe_softmax(x.view(8, 80, 100), -1),
        torch.randn(64, 1000),
    ),
    "a norm of columns": (lambda x: F.layer_norm(x.view(64, 40, 25).mT, (40,)), torch.randn(64, 1000)),
    "two dims": (lambda x: x.view(8, 8, 1000).roll((1, 2), (0, 1)), SHORT),
    "one dim": (lambda x: x.roll(1, 1), SHORT),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_what_a_kernel_copies_counts(name: str) -> None:
    program, x = REDUCTIONS[name]
    real = real_peak(lambda: program(x), x.nbytes)
    assert sa.profile(program, x).peak == pytest.approx(real, rel=0.002)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "LSTM": (lambda: nn.LSTM(128, 256), (32, 64, 128)),
    "LSTM, odd sizes": (lambda: nn.LSTM(300, 100), (7, 16, 300)),
    "LSTM, small": (lambda: nn.LSTM(7, 11, bias=False), (3, 5, 7)),
    "LSTM, batch first": (lambda: nn.LSTM(100, 64, 2, batch_first=True, bidirectional=True), (16, 7, 100)),
}


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="oneDNN runs these layers where it is there")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("reads", [False, True])
def test_recurrent_layers_take_what_the_allocator_says(name: str, reads: bool) -> None:
    make, size = LAYERS[name]
    layer, x = make(), torch.randn(size).requires_grad_(reads)

    def step(layer: nn.Module, x: torch.Tensor) -> None:
        layer(x)[0].square().sum().backward()

    base = x.nbytes + sum(p.nbytes for p in layer.parameters())
    assert sa.profile(step, layer, x).peak == pytest.approx(real_peak(lambda: step(layer, x), base), rel=0.001)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("size", [(1000, 16, 64), (20_000, 64, 512)])
def test_bags_of_words_take_what_the_allocator_says(mode: str, sparse: bool, size: tuple[int, int, int]) -> None:
    if mode == "max" and sparse:
        return  # torch has no such gradient
    rows, width, batch = size
    table, words = nn.EmbeddingBag(rows, width, mode=mode, sparse=sparse), torch.randint(0, rows, (batch, 20))

    def step(table: nn.Module, words: torch.Tensor) -> None:
        table(words).square().sum().backward()

    base = table.weight.nbytes + words.nbytes
    report = sa.profile(step, table, words)
    assert report.peak == pytest.approx(real_peak(lambda: step(table, words), base), rel=0.005)


@torch.library.custom_op("workspaces::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.repeat(4)[: len(x)] * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_kernels_of_others_are_named() -> None:
    x = torch.randn(1000)
    report = sa.profile(lambda x: doubled(x), x)
    (line,) = report.unknown
    assert line.startswith("the workspace of workspaces::doubled (1x): its kernel is not torch's")
    assert real_peak(lambda: doubled(x), 4000) > report.peak == 8000
    assert not sa.profile(torch.sin, x).unknown
