"""`python -m benchmarks`: measures everything, prints the table, writes `docs/benchmarks/`."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks import (
    call,
    dispatch,
    dynamo,
    files,
    flatness,
    growth,
    int8,
    kernels,
    leaves,
    limit,
    loops,
    machine,
    meta,
    models,
    new_process,
    optimizers,
    report,
    signature,
    trace,
    values,
)
from benchmarks.row import Result
from subclass_aot.testing.benchmark import QUICK, Budget

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"
NORMAL = Budget()

Subject = Callable[[Budget], Iterator[Result]]
SUBJECTS: dict[str, Subject] = {
    "dispatch": dispatch.run,
    "leaves": leaves.run,
    "flatness": flatness.run,
    "planning": flatness.run_planning,
    "trace": trace.run,
    "meta": meta.run,
    "call": call.run,
    "signature": signature.run,
    "growth": growth.run,
    "loops": loops.run,
    "values": values.run,
    "models": models.run,
    "int8": int8.run,
    "kernels": kernels.run,
    "dynamo": dynamo.run,
    "files": files.run,
    "new process": new_process.run,
    "optimizers": optimizers.run,
    "limit": limit.run,
}


def main(arguments: list[str]) -> int:
    """Runs the benchmarks that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, a first impression")
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="one subject; may be repeated")
    parser.add_argument(
        "--out", type=Path, help="where to write; default: docs/benchmarks, and nowhere for a part of it"
    )
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", module="torch")
    budget = QUICK if chosen.quick else NORMAL
    results = list(measure(chosen.only or list(SUBJECTS), budget))
    print(f"{machine.config()}\n\n{report.on_screen(results)}")
    folder = chosen.out or (None if chosen.quick or chosen.only else FOLDER)
    if folder is not None:
        report.write(results, machine.describe(), folder)
        print(f"\nWrote {folder / 'table.md'} and {folder / 'results.json'}")
    return 0


def measure(names: list[str], budget: Budget) -> Iterator[Result]:
    """Runs subjects and says on stderr how far it is."""
    for name in names:
        print(f"{name} ...", end=" ", flush=True, file=sys.stderr)
        start = time.perf_counter()
        yield from SUBJECTS[name](budget)
        print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
