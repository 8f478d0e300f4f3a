"""The pictures of the demo show what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.demo import plots
from benchmarks.demo.costs import CallCost
from benchmarks.demo.lockstep import Record

WAYS = {"eager": 30.0, "aot_function": 50.0, "aot_compile": 12.0, "dense": 10.0}


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The axes that are drawn into."""
    drawn: list[Any] = []
    make = plots._figure

    def figure(*args: str) -> Any:
        made = make(*args)
        drawn.append(made[1])
        return made

    monkeypatch.setattr(plots, "_figure", figure)
    return drawn


def curves(axes: Any) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}


def test_costs_beyond_dense_tensors(axes: list[Any], tmp_path: Path) -> None:
    plots.plot_call_costs([CallCost(1, WAYS), CallCost(10, {k: v * 2 for k, v in WAYS.items()})], tmp_path / "a.png")
    assert curves(axes[0]) == {
        "eager": [20, 40], "aot_function, which checks no arguments": [40, 80], "aot_compile": [2, 4],
    }  # fmt: skip
    assert list(axes[0].get_lines()[0].get_xdata()) == [1, 10]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_both_losses(axes: list[Any], tmp_path: Path) -> None:
    plots.plot_losses(Record([2.0, 1.0], [2.0, 1.5]), tmp_path / "b.png")
    assert curves(axes[0]) == {"eager": [2, 1], "aot_compile": [2, 1.5]} and (tmp_path / "b.png").exists()
