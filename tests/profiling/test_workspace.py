"""Kernels' own memory, where it is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import subclass_aot as sa
from tests.profiling.allocator import real_peak

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
