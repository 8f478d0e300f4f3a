"""The two pictures of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from subclass_aot.demo.costs import CallCost
from subclass_aot.demo.lockstep import Record


def plot_losses(record: Record, path: Path) -> None:
    """Draws the loss of both trainings; the compiled one is dashed, so that the other shows through."""
    figure, axes = _figure("Digits: loss of each step", "step", "cross entropy")
    axes.plot(record.eager_losses, label="eager", linewidth=4, alpha=0.4)
    axes.plot(record.compiled_losses, label="aot_compile", linewidth=1.2, linestyle="--", color="black")
    axes.legend()
    figure.savefig(path, dpi=150)


def plot_call_costs(costs: Sequence[CallCost], path: Path) -> None:
    """Draws the time of a call against the number of wrappers, for each way of calling."""
    figure, axes = _figure("One call of [x * 2 for x in xs], one thread", "TwoTensor arguments", "microseconds")
    for way in costs[0].microseconds:
        floor = {"color": "grey", "linestyle": ":"} if way == "dense" else {"marker": "o"}
        label = "the same work on dense tensors" if way == "dense" else way
        axes.loglog([cost.wrappers for cost in costs], [cost.microseconds[way] for cost in costs], label=label, **floor)
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
