"""Copies of what libraries cannot read where it lies."""

from __future__ import annotations

import pytest
import torch

import subclass_aot as sa
from subclass_aot.cost.profiling.copies import is_copied

X = torch.empty(6, 4)


@pytest.mark.parametrize(
    ("matrix", "copied"),
    [(X, False), (X.t(), False), (X[::2], False), (X[:, ::2], True), (X[:1, :1].expand(6, 4), True), (X[:, :1], False)],
)
def test_which_matrices(matrix: torch.Tensor, copied: bool) -> None:
    assert is_copied(matrix) is copied


def test_on_a_gpu_too() -> None:
    taken = [
        sa.profile(torch.mm, left, torch.empty(300, 100), device="H100").peak
        for left in (torch.ones(1, 1).expand(200, 300), torch.ones(200, 300))
    ]
    assert taken[1] - taken[0] == pytest.approx(0, abs=1024)  # copied, or there before
