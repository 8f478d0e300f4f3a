"""The demo from end to end."""

from __future__ import annotations

import statistics
from pathlib import Path

import torch

from benchmarks.demo.costs import CallCost, call_cost, meta_vit, trace_vit
from benchmarks.demo.digits import Digits, describe_weights, quantized_vit
from benchmarks.demo.lockstep import Lockstep, Record, accuracy, batches
from benchmarks.demo.plots import plot_call_costs, plot_losses
from benchmarks.demo.report import Row, Screen, screen
from benchmarks.demo.vit import ViT

BATCH = 96
TOLERANCE = 1e-5
ACCURACY = 0.9
WRAPPER_COUNTS = (1, 3, 10, 30, 100)
META_BATCH = 10**10


def run(out: Path, epochs: int = 20) -> int:
    """Runs the demo, shows it on the screen and writes two plots.

    Args:
        out: The folder for the plots; made if it is not there.
        epochs: How often the training sees each digit.

    Returns:
        The exit status: 0 when compiled training equalled eager and the accuracy was reached, else 1.
    """
    show = screen()
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)

    rows, record = train_digits(show, epochs)
    rows += trace_large(show)
    call_rows, costs = measure_calls(show)
    rows += call_rows
    rows += run_without_data(show)

    plot_losses(record, out / "losses.png")
    plot_call_costs(costs, out / "call_overhead.png")
    show.table("subclass_aot demo", rows)
    show.stage(f"Plots: {out / 'losses.png'}, {out / 'call_overhead.png'}")
    return 1 if any(row.passed is False for row in rows) else 0


def train_digits(show: Screen, epochs: int) -> tuple[list[Row], Record]:
    """Trains the small transformer in eager mode and compiled, side by side."""
    digits = Digits.load()
    training = Lockstep(quantized_vit())
    show.stage(f"Training a small ViT on digits, eager and compiled ({describe_weights(training.eager)})")
    total = epochs * (len(digits.train_labels) // BATCH)
    for images, labels in show.track(batches(digits, epochs, BATCH), total=total, title="steps"):
        training.step(images, labels)

    record, found = training.record, accuracy(training.compiled, digits)
    compiled_ms, eager_ms = (
        statistics.median(seconds) * 1e3 for seconds in (record.compiled_seconds, record.eager_seconds)
    )
    allowed = f"{TOLERANCE:.0e}  allowed"
    loss, parameters = record.loss_difference, record.parameter_difference
    eager_found = accuracy(training.eager, digits)
    rows = [
        Row(f"digits: loss, {total} steps", f"{loss:.1e} apart", allowed, loss <= TOLERANCE),
        Row("digits: parameters", f"{parameters:.1e} apart", allowed, parameters <= TOLERANCE),
        Row("digits: accuracy", f"{found:.1%}", f"{eager_found:.1%}  eager", found > ACCURACY),
        Row("digits: one step", f"{compiled_ms:.1f} ms", f"{eager_ms:.1f} ms  eager"),
    ]
    return rows, record


def trace_large(show: Screen) -> list[Row]:
    """Traces ViT-B/16 forward and backward, with this library and with torch."""
    show.stage("Tracing ViT-B/16 with trace_joint and with aot_function")
    ours, theirs = trace_vit(ViT(), torch.randn(1, 3, 224, 224))
    return [
        Row("ViT-B/16: joint trace", f"{ours.milliseconds:.0f} ms", f"{theirs.milliseconds:.0f} ms  aot_function"),
        Row("ViT-B/16: joint graph", f"{ours.nodes} nodes", f"{theirs.nodes} nodes  aot_function"),
    ]


def measure_calls(show: Screen) -> tuple[list[Row], list[CallCost]]:
    """Measures what a call costs, by number of wrapper arguments."""
    show.stage("Measuring calls with wrapper arguments")
    costs = list(show.track(map(call_cost, WRAPPER_COUNTS), total=len(WRAPPER_COUNTS), title="sizes"))
    shown = [cost for cost in costs if cost.wrappers in (1, 10, 100)]
    return [_call_row(cost) for cost in shown], costs


def _call_row(cost: CallCost) -> Row:
    us = cost.microseconds
    what = f"call with {cost.wrappers} TwoTensor"
    return Row(what, f"{us['aot_compile']:.0f} us", f"{us['aot_function']:.0f} us  aot_function")


def run_without_data(show: Screen) -> list[Row]:
    """Runs ViT-B/16 forward and backward on a batch that only exists as a shape."""
    show.stage(f"Running ViT-B/16 on MetaTensors, batch {META_BATCH:,}")
    ours, plain = meta_vit(META_BATCH)
    return [Row("ViT-B/16: batch 10^10", f"{ours:.0f} ms", f'{plain:.0f} ms  device="meta"')]
