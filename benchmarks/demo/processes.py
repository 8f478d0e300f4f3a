"""The demo in several processes: a GPT that is sharded over them learns the same as in one process."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.demo import ranks

STEPS = 10
PART = 4
TOLERANCE = 1e-5
SECONDS = 300
"""After which processes that have not ended are killed."""


@dataclass(frozen=True)
class Step:
    """One step of both trainings.

    Args:
        one: The loss in one process, on the whole batch.
        several: The mean of the losses of several, each on its part.
        gathered: Bytes that came together on a rank.
        floats: The same with float weights.
    """

    one: float
    several: float
    gathered: int
    floats: int

    @property
    def difference(self) -> float:
        return abs(self.one - self.several)


def run(processes: int, steps: int = STEPS) -> int:
    """Trains in one process and in several, and prints a table of both.

    Args:
        processes: How many; at least two.
        steps: How many steps to train.

    Returns:
        The exit status: 0 when both learned the same at each step, else 1.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        print("this torch has no gloo, by which processes on one machine talk")
        return 1
    print(f"A GPT with int8 weights and trained low-rank factors, sharded over {processes} processes", flush=True)
    try:
        several = in_processes(processes, steps)
    except RuntimeError as error:
        print(error)
        return 1
    whole = in_one_process(steps, processes * PART)
    found = [Step(one, *rest) for one, rest in zip(whole, several, strict=True)]
    print(table(found, processes))
    return 0 if equal(found) else 1


def equal(found: Sequence[Step]) -> bool:
    """Returns True if the loss curves agree; empty curves and NaN never do."""
    return bool(found) and all(step.difference <= TOLERANCE for step in found) and found[-1].one != math.inf


def table(found: Sequence[Step], processes: int) -> str:
    """What is printed: a line for each step, and one that says whether all are equal.

    >>> print(table([Step(4.0, 4.0, 1500, 6000)], 2))
    step  one process  2 processes  difference  gathered  with float weights
       1     4.000000     4.000000     0.0e+00    1.5 kB              6.0 kB
    equal: no difference is over 1e-05; 4.0 times fewer bytes
    """
    heads = ("step", "one process", f"{processes} processes", "difference", "gathered", "with float weights")
    rows = [
        (str(i), f"{s.one:.6f}", f"{s.several:.6f}", f"{s.difference:.1e}", _kilo(s.gathered), _kilo(s.floats))
        for i, s in enumerate(found, 1)
    ]
    lines = ["  ".join(cell.rjust(len(head)) for cell, head in zip(row, heads, strict=True)) for row in (heads, *rows)]
    if equal(found):
        less = f"{found[0].floats / found[0].gathered:.1f} times fewer bytes"
        lines.append(f"equal: no difference is over {TOLERANCE:.0e}; {less}")
    else:
        lines.append(f"NOT EQUAL: a difference is over {TOLERANCE:.0e}")
    return "\n".join(lines)


def _kilo(count: int) -> str:
    return f"{count / 1000:.1f} kB"


def in_one_process(steps: int, size: int) -> list[float]:
    """The losses of the same training here, in eager mode."""
    model = ranks.made()
    optimizer = ranks.optimizer_of(model)
    return [float(ranks.train_step(model, optimizer, *ranks.batch(step, size))) for step in range(steps)]


def in_processes(processes: int, steps: int) -> list[tuple[float, int, int]]:
    """What the ranks found, each a process that is started here and over when this returns.

    Raises:
        RuntimeError: One has failed, or did not end in time; its own words stand above.
    """
    context = torch.multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        children = [
            context.Process(target=ranks.run_rank, args=(rank, processes, folder, steps, PART), daemon=True)
            for rank in range(processes)
        ]
        try:
            for child in children:
                child.start()
            end = time.monotonic() + SECONDS
            while any(child.exitcode is None for child in children) and time.monotonic() < end:
                if any(child.exitcode for child in children):
                    break  # the others wait for it
                time.sleep(0.05)
        finally:
            for child in children:
                if child.pid is not None and child.exitcode is None:
                    child.kill()
                if child.pid is not None:
                    child.join()
        codes = [child.exitcode for child in children]
        if any(codes):
            raise RuntimeError(f"the processes ended with {codes}")
        found = json.loads((Path(folder) / "found.json").read_text())
    return [(loss, gathered, floats) for loss, gathered, floats in found]
