"""The two pictures of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.demo.costs import CallCost
from benchmarks.demo.lockstep import Record


def plot_losses(record: Record, path: Path) -> None:
    """Draws the loss of both trainings; the compiled one is dashed, so that the other shows through."""
    figure, axes = _figure("Digits: loss of each step", "step", "cross entropy")
    axes.plot(record.eager_losses, label="eager", linewidth=4, alpha=0.4)
    axes.plot(record.compiled_losses, label="aot_compile", linewidth=1.2, linestyle="--", color="black")
    axes.legend()
    figure.savefig(path, dpi=150)


def plot_call_costs(costs: Sequence[CallCost], path: Path) -> None:
    """Draws what a call costs beyond the same work on dense tensors, for each way of calling."""
    figure, axes = _figure("Overhead of one call of [x * 2 for x in xs]", "TwoTensor arguments", "microseconds")
    counts = [cost.wrappers for cost in costs]
    for way in ("eager", "aot_function", "aot_compile"):
        label = "aot_function, which checks no arguments" if way == "aot_function" else way
        axes.loglog(counts, [cost.microseconds[way] - cost.microseconds["dense"] for cost in costs], "o-", label=label)
    axes.legend()
    figure.savefig(path, dpi=150)


def _figure(title: str, x: str, y: str) -> tuple[Any, Any]:
    """An empty figure, made without pyplot: no window system, and nothing to close."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return figure, axes
