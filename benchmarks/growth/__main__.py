"""How the time of first calls, second calls and hits grows with a program: exponents, beside torch's.

    python -m benchmarks.growth > docs/benchmarks/growth.md

A program is compiled and called at four sizes, each twice the one before: the first call, with its backward, then a
call with tensors of other sizes, then a hit. The exponent is the slope of the logarithms over the upper half.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import torch
import transformers

from benchmarks.growth.measure import ABOVE, AOT, DYNAMO, KINDS, OURS, Allowed, Measured, measure
from benchmarks.growth.subjects import SUBJECTS
from benchmarks.machine import describe

Rows = Mapping[str, Mapping[str, Measured]]


def table(rows: Rows) -> Iterator[str]:
    """Yields the lines of the table, one for each subject and kind of call."""
    yield (
        f"| what grows | call | up to | {OURS}: ms each | exponent | of calls "
        f"| {DYNAMO}: up to | ms each | exponent | {AOT}: up to | ms each | exponent |"
    )
    yield "|---|---|" + "---:|" * 10
    for name, sides in rows.items():
        for kind in KINDS:
            ours = sides[OURS]
            if ours.seconds[kind]:
                calls = ours.exponent_of_calls(kind)
                cells = [*_cells(ours, kind), "" if calls is None else f"{calls:.2f}"]
                for side in (DYNAMO, AOT):
                    cells += _cells(sides.get(side), kind)
                yield f"| {name} | {kind} | " + " | ".join(cells) + " |"


def _cells(measured: Measured | None, kind: str) -> list[str]:
    if measured is None or not measured.seconds[kind]:
        return [measured.error if measured is not None else "", "", ""]
    largest, exponent = max(measured.seconds[kind]), measured.exponent(kind)
    each = f"{measured.median(kind, largest) / largest * 1e3:.3g}"
    if exponent is None:
        return [f"{largest:,}", each, ""]
    return [f"{largest:,}", each, f"{exponent.median:.2f} ({exponent.low:.2f} to {exponent.high:.2f})"]


def superlinear(rows: Rows) -> list[str]:
    """Returns what is superlinear on our side: by its calls, or by all of two rounds or more of its time."""
    found = []
    for name, sides in rows.items():
        for kind in KINDS:
            times, calls = sides[OURS].exponent(kind), sides[OURS].exponent_of_calls(kind)
            is_noise = any(len(rounds) < 2 for rounds in sides[OURS].seconds[kind].values())
            if (times is not None and times.low > ABOVE and not is_noise) or (calls is not None and calls > ABOVE):
                found.append(f"{name}, {kind}")
    return found


def page(rows: Rows) -> Iterator[str]:
    """Yields the lines of the page."""
    yield str(describe())
    yield ""
    yield f"Superlinear (an exponent above {ABOVE} of calls, or in each round of time): {_listed(superlinear(rows))}."
    yield ""
    yield from table(rows)


def _listed(names: Iterable[str]) -> str:
    return "; ".join(names) or "nothing"


def main(arguments: Iterable[str] | None = None) -> None:
    """Prints the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="a subject; may be given several times")
    parser.add_argument("--seconds", type=float, default=Allowed.seconds, help="how long each subject takes, about")
    parser.add_argument("--ours", action="store_true", help="leaves out torch's sides")
    parser.add_argument("--divided", type=int, default=1, help="divides the largest sizes, for a first impression")
    options = parser.parse_args(None if arguments is None else list(arguments))
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = {}
    for name in options.only or SUBJECTS:
        print(f"{name} ...", end=" ", flush=True, file=sys.stderr)
        start, subject = time.perf_counter(), SUBJECTS[name].smaller(options.divided)
        subject = replace(subject, with_torch=subject.with_torch and not options.ours)
        rows[name] = measure(subject, Allowed(options.seconds))
        print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    print("\n".join(page(rows)))


if __name__ == "__main__":
    main()
