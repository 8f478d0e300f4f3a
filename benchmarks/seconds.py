"""What `report.seconds()` says of steps of training on this machine's CPU, and how long they take.

    python -m benchmarks.seconds

The device is `subclass_aot.cost.devices.measure("cpu")`. Steps are run in turns, and the median counts.
"""

from __future__ import annotations

import statistics
import time
import warnings

import torch

import subclass_aot as sa
from benchmarks.machine import describe
from benchmarks.programs import PROGRAMS
from subclass_aot.cost.devices import measure

NAMES = ("MLP", "TransformerEncoder", "Llama, Int8Weight", "conv2d", "GRU", "GPT-2, checkpointed", "MLP, autocast")
ROUNDS = 9


def main() -> None:
    """Prints the page."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    steps, reports = {}, {}
    for name in NAMES:
        program = PROGRAMS[name]
        torch.manual_seed(0)
        given = program.made()
        reports[name] = sa.profile(program.step, *given)
        steps[name] = program.step, given
    device = measure()
    took: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in range(ROUNDS):
        for name, (step, given) in steps.items():
            began = time.perf_counter()
            step(*given)
            took[name].append(time.perf_counter() - began)
    print(describe(), f"\n\n{device.to_toml()}")
    print("| program | at best, ms | measured, ms | of it | bound by |\n|---|---|---|---|---|")
    for name, seconds in took.items():
        times, real = reports[name].seconds(device), statistics.median(seconds)
        bounds = ", ".join(f"{bound} {part / times.seconds:.0%}" for bound, part in times.by_bound.items())
        print(f"| {name} | {times.seconds * 1e3:.1f} | {real * 1e3:.1f} | {times.seconds / real:.0%} | {bounds} |")


if __name__ == "__main__":
    main()
