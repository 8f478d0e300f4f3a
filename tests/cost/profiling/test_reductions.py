"""Reductions on CUDA: more than these in `tests/device_probes.json`, which an H100 has written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import subclass_aot as sa

ON_AN_H100: dict[str, tuple[Callable[[], torch.Tensor], int]] = {
    "rows of a gradient": (lambda: torch.randn(8192, 2048).sum(0), 134_217_728 + 2048 * 4),
    "more of them": (lambda: torch.randn(8192, 8192).sum(0), 138_412_032 + 8192 * 4),
    "in bfloat16": (lambda: torch.randn(8192, 8192).bfloat16().sum(0), 138_412_032 + 8192 * 2),
    "in rows": (lambda: torch.randn(8192, 2048).sum(1), 8192 * 4),
    "few": (lambda: torch.randn(300, 200).sum(0), 200 * 4),
    "converted": (lambda: torch.randn(300, 200).sum(0, dtype=torch.float64), 300 * 200 * 8 + 200 * 8),
}


@pytest.mark.parametrize("name", ON_AN_H100)
def test_what_reductions_take(name: str) -> None:
    program, expected = ON_AN_H100[name]
    with sa.meta("H100"), sa.profile(torch.nn.Module(), device="H100") as report:
        program()
    taken = sum(x.nbytes for x in report.timeline.allocations if x.operator == "sum")
    assert taken == pytest.approx(expected, abs=4096)


def test_halves_where_indices_would_be_too_long() -> None:
    with sa.meta("H100"):
        x = torch.empty(2**20, 2**13)
    few, many = (sa.profile(lambda x: x.sum(0), x[:n], device="H100") for n in (2**18, 2**20))
    taken = [[x.nbytes for x in each.timeline.allocations if x.kinds[0][1] == "workspace"] for each in (few, many)]
    assert taken[0] == taken[1]


def test_no_elements() -> None:
    report = sa.profile(lambda x: x.sum(), torch.empty(0, 5), device="H100")
    assert "workspace" not in report.owners()
