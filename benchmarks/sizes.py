"""Two calls of each model of the zoo: the first, and one with other sizes, for which sizes are symbols.

    python -m benchmarks.sizes > docs/benchmarks/sizes.md

A call is forward and backward, and nearly all of it is compiling. Each is measured in processor time, with a compiled
function of its own each time, after one round that is not counted: the first symbol of a process imports sympy.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import transformers

import subclass_aot as sa
from benchmarks.machine import describe
from tests.models.architectures import ARCHITECTURES, make

BATCHES = (2, 3)
MEDIAN_WITHIN, EACH_WITHIN = 1.5, 4.0
"""How many times the first call the second one ought to take at the most."""

Row = tuple[float, float]
"""Seconds of both calls."""


def calls_of(name: str) -> Row:
    """Returns the seconds of two calls of a function that is compiled for them."""
    torch.manual_seed(0)
    model, inputs = make(name).train(), ARCHITECTURES[name].inputs
    compiled: Any = sa.aot_compile(model)
    seconds = []
    for batch in BATCHES:
        given = inputs(batch)
        begun = time.process_time()
        made = compiled(**given)
        made.loss.backward()
        seconds.append(time.process_time() - begun)
    first, second = seconds
    return first, second


def measure(name: str, rounds: int) -> Row:
    """Returns the medians of several rounds, after one that does not count."""
    found = [calls_of(name) for _ in range(rounds + 1)][1:]
    return statistics.median([first for first, _ in found]), statistics.median([second for _, second in found])


def table(rows: Mapping[str, Row]) -> Iterator[str]:
    """Yields what the rows come to, and the rows, the slowest second calls first."""
    times = {name: second / first for name, (first, second) in rows.items()}
    over = [name for name, ratio in times.items() if ratio > EACH_WITHIN]
    worst, median = max(times.values()), statistics.median(times.values())
    yield (
        f"- With other sizes, a call takes {median:.2f} times the first one in the median of {len(rows)} models (at "
        f"most {MEDIAN_WITHIN} ought to be), {worst:.2f} times at worst (at most {EACH_WITHIN}); over that: "
        f"{', '.join(over) or 'none'}."
    )
    yield ""
    yield "| model | first call | with other sizes | times as long |"
    yield "|---|---:|---:|---:|"
    for name in sorted(rows, key=times.__getitem__, reverse=True):
        first, second = rows[name]
        yield f"| {name} | {first * 1e3:.0f} ms | {second * 1e3:.0f} ms | {times[name]:.2f} |"


def main(arguments: Iterable[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=ARCHITECTURES, help="a model; may be given several times")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default: %(default)s)")
    options = parser.parse_args(None if arguments is None else list(arguments))
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: dict[str, Row] = {}
    for name in options.only or ARCHITECTURES:
        rows[name] = first, second = measure(name, options.rounds)
        print(f"{name} {second / first:.2f}", file=sys.stderr)
    print(f"{describe()}\n")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
