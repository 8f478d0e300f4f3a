"""What the demo measures is what it says: numbers that are there, and ways that do the same."""

from __future__ import annotations

import gc
import time

import pytest
import torch

from benchmarks.demo import costs
from benchmarks.demo.vit import ViT


@pytest.mark.filterwarnings("ignore")
def test_both_traces_are_counted() -> None:
    vit = ViT(image=8, patch=4, channels=1, layers=1, width=8, heads=2, hidden=8, classes=2)
    ours, theirs = costs.trace_vit(vit, torch.rand(1, 1, 8, 8))
    assert 50 < ours.nodes < 2 * theirs.nodes and min(ours.milliseconds, theirs.milliseconds) > 0


@pytest.mark.filterwarnings("ignore")
def test_a_call_is_measured_in_each_way() -> None:
    cost = costs.call_cost(3, repeats=2)
    assert cost.wrappers == 3 and set(cost.microseconds) == {"eager", "aot_function", "aot_compile", "dense"}
    assert all(us > 0 for us in cost.microseconds.values()), "which is more depends on what else the machine does"


def test_medians_leave_out_the_first_call() -> None:
    calls: list[str] = []

    def slow_at_first() -> None:
        calls.append("slow")
        time.sleep(0.2 if len(calls) == 1 else 0)

    medians = costs._medians_us({"slow": slow_at_first, "other": lambda: calls.append("other")}, repeats=1)
    assert calls == ["slow", "other"] * 2 and medians["slow"] < 50_000


def test_cycles_are_collected_again_afterwards() -> None:
    def fails() -> None:
        assert not gc.isenabled()
        raise ValueError

    with pytest.raises(ValueError):
        costs._medians_us({"fails": fails}, repeats=1)
    assert gc.isenabled()
