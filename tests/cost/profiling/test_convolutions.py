"""What convolutions take beside their results, against what torch's allocator gives out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.cost.profiling.allocator import real_peak

like_here = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512") or not torch.backends.mkldnn.is_available(),
    reason="oneDNN has other layouts on other CPUs",
)

on_avx2 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2" or not torch.backends.mkldnn.is_available(),
    reason="of these, kernels of other CPUs are not known as well",
)

Case = tuple[Callable[[], nn.Module], tuple[int, ...]]

CASES: dict[str, Case] = {
    "few channels": (lambda: nn.Conv2d(3, 32, 3, padding=1), (8, 3, 32, 32)),
    "some channels": (lambda: nn.Conv2d(12, 20, 3, padding=1), (8, 12, 32, 32)),
    "whole blocks": (lambda: nn.Conv2d(32, 64, 3, padding=1, bias=False), (8, 32, 28, 28)),
    "parts of blocks": (lambda: nn.Conv2d(20, 36, 3, padding=1), (8, 20, 32, 32)),
    "one pixel": (lambda: nn.Conv2d(64, 128, 1), (8, 64, 16, 16)),
    "steps": (lambda: nn.Conv2d(32, 64, 3, stride=2, padding=1), (8, 32, 32, 32)),
    "patches": (lambda: nn.Conv2d(3, 192, 8, stride=8), (8, 3, 64, 64)),
    "depthwise": (lambda: nn.Conv2d(32, 32, 3, padding=1, groups=32), (8, 32, 32, 32)),
    "depthwise, wide": (lambda: nn.Conv2d(96, 96, 7, padding=3, groups=96), (8, 96, 16, 16)),
    "groups": (lambda: nn.Conv2d(64, 64, 3, padding=1, groups=2), (8, 64, 16, 16)),
    "one dim": (lambda: nn.Conv1d(16, 32, 3), (8, 16, 256)),
    "three dims": (lambda: nn.Conv3d(16, 16, 3, padding=1), (4, 16, 12, 12, 12)),
    "transposed": (lambda: nn.ConvTranspose2d(32, 16, 2, stride=2), (16, 32, 16, 16)),
    "columns": (lambda: nn.Conv2d(16, 32, 3, padding=1).double(), (4, 16, 32, 32)),
    "no columns": (lambda: nn.Conv2d(16, 32, 1).double(), (4, 16, 32, 32)),
    "one image": (lambda: nn.Conv2d(3, 16, 3), (1, 3, 16, 16)),
}


def step(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = layer(x)
    y.backward(torch.ones_like(y))
    return y


@like_here
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("last", [False, True])
def test_convolutions_take_what_the_allocator_says(name: str, last: bool) -> None:
    make, size = CASES[name]
    layer = make()
    x = torch.randn(size, dtype=next(layer.parameters()).dtype)
    if last:
        if len(size) != 4 or name in ("transposed", "depthwise, wide"):
            return
        layer, x = layer.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    base = x.nbytes + sum(p.nbytes for p in layer.parameters())
    report = sa.profile(step, layer, x)
    real = real_peak(lambda: step(layer, x), base)
    assert report.peak == pytest.approx(real, rel=0.03 if last or name == "patches" else 0.005)
    assert all("by a formula" in line for line in report.unknown)


OF_AVX2: dict[str, Case] = {
    "a part of a block": (lambda: nn.Conv2d(4, 20, 3, padding=1, bias=False), (4, 4, 28, 28)),
    "one colour": (lambda: nn.Conv2d(1, 20, 3), (4, 1, 32, 32)),
    "one pixel, steps": (lambda: nn.Conv1d(32, 12, 1, stride=2, bias=False), (2, 32, 256)),
    "groups, parts of blocks": (lambda: nn.Conv2d(12, 32, 3, groups=4), (8, 12, 32, 32)),
    "depthwise, parts of blocks": (lambda: nn.Conv2d(20, 20, 3, groups=20), (4, 20, 32, 32)),
    "depthwise, one pixel": (lambda: nn.Conv1d(64, 64, 1, groups=64, bias=False), (8, 64, 256)),
    "three dims, padded": (lambda: nn.Conv3d(20, 36, 3, padding=1), (8, 20, 12, 12, 12)),
    "three dims, one cell": (lambda: nn.Conv3d(16, 8, 1), (4, 16, 12, 12, 12)),
    "bfloat16": (lambda: nn.Conv2d(3, 32, 3, padding=1).bfloat16(), (4, 3, 16, 16)),
}


@on_avx2
@pytest.mark.parametrize("name", OF_AVX2)
@pytest.mark.parametrize("reads", [False, True])
def test_kernels_of_avx2_take_what_the_allocator_says(name: str, reads: bool) -> None:
    make, size = OF_AVX2[name]
    layer = make()
    x = torch.randn(size, dtype=next(layer.parameters()).dtype).requires_grad_(reads)
    base = x.nbytes + sum(p.nbytes for p in layer.parameters())
    report = sa.profile(step, layer, x)
    assert report.peak == pytest.approx(real_peak(lambda: step(layer, x), base), rel=0.01)


def test_what_nobody_knows_is_said() -> None:
    dilated = nn.Conv2d(8, 8, 3, dilation=2).double()
    lines = sa.profile(dilated, torch.randn(2, 8, 8, 8, dtype=torch.float64)).unknown
    assert lines[0] == "the workspace of convolution (1x): nobody says it before it runs"
    lines = sa.profile(nn.Conv2d(3, 8, 3), torch.randn(2, 3, 8, 8), device="H100").unknown
    assert lines[0].startswith("the workspace of convolution (1x): cuDNN")


def test_kernels_are_those_that_torch_selects() -> None:
    """A product of one image is left to torch's own kernel, whose columns are known exactly."""
    assert not sa.profile(nn.Conv2d(3, 16, 3), torch.randn(1, 3, 16, 16)).unknown
