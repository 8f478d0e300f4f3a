"""What `sa.profile` says of a step of training before it runs, beside what torch says of the run.

    python -m benchmarks.cost > docs/benchmarks/cost.md

The peak of a real run on a CPU is the largest running sum of all that torch's allocator gives out and takes back, over
parameters, buffers and inputs. So it has the workspace of kernels, which a report cannot know: see its lines
"not known". "Later" are programs that were chosen when the code was written, and that nothing in it was changed for.
What `sa.profile` refuses stands with its error.

Torch's counter takes a product of a wrapper for one of a dense tensor, and does not count what the wrapper's class
computes instead: of `LoraWeight` beside a frozen weight, the products with both narrow factors. So it counts less than
was computed for "Llama, LoRA"; the report has all products that ran.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import warnings
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import subclass_aot as sa
from benchmarks import later_programs, more_programs, programs
from benchmarks.machine import describe
from benchmarks.programs import Program
from subclass_aot.errors import SubclassAotError

PROGRAMS = {**programs.PROGRAMS, **more_programs.PROGRAMS, **later_programs.PROGRAMS}


class NoModules(nullcontext[None]):
    """Stands in torch's counter for what finds the module of a product, which refuses a gradient of an input."""

    parents = frozenset({"Global"})


def measured(program: Program) -> dict[str, Any]:
    """What is said before, and what is so."""
    torch.manual_seed(0)
    given = program.made()
    began = time.perf_counter()
    report = sa.profile(program.step, *given, assume=program.assume)
    seconds = time.perf_counter() - began
    gc.collect()
    check = report.check()
    torch.manual_seed(0)
    counter: Any = FlopCounterMode(display=False)
    counter.mod_tracker = NoModules()
    given = program.made()
    with counter:
        program.step(*given)
    counted = {str(func).partition(".")[2] for func in flop_registry}
    own = report.flops(by="operator")
    more = sum(n for name, n in own.items() if name not in counted or "for_cpu" in name)
    return {
        "peak": report.peak,
        "real": check.peak,
        "flops": report.flops() - more,
        "counted": counter.get_total_flops(),
        "more": more,
        "seconds": seconds,
        "unknown": report.unknown,
        "at": report.peak_at.phase,
    }


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """Lines of the table."""
    lines = [
        "| program | kind | chosen | peak, MiB | real | error | products, GFLOP | counted | equal | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, each in found.items():
        program = PROGRAMS[name]
        error = each["peak"] / each["real"] - 1
        equal = "yes" if each["flops"] == each["counted"] else "no"
        by_formula = all("by a formula" in line for line in each["unknown"])
        not_known = f" (workspace {'by a formula' if by_formula else 'not known'})" if each["unknown"] else ""
        lines.append(
            f"| {name} | {program.kind} | {'later' if program.later else 'before'} | {each['peak'] / 2**20:.2f} | "
            f"{each['real'] / 2**20:.2f} | {error:+.2%}{not_known} | {each['flops'] / 1e9:.3f} | "
            f"{each['counted'] / 1e9:.3f} | {equal} | {each['seconds']:.2f} |"
        )
    return lines


def summary(found: dict[str, dict[str, Any]]) -> list[str]:
    """What holds in how many."""
    errors = {name: abs(each["peak"] / each["real"] - 1) for name, each in found.items()}
    known = [name for name, each in found.items() if not each["unknown"]]
    later = [name for name in found if PROGRAMS[name].later]

    def said(names: list[str]) -> str:
        return (
            f"{sum(errors[name] <= 0.001 for name in names)} of {len(names)} within 0.1%, "
            f"{sum(errors[name] <= 0.01 for name in names)} within 1%, "
            f"{sum(errors[name] <= 0.05 for name in names)} within 5%"
        )

    equal = sum(each["flops"] == each["counted"] for each in found.values())
    return [
        f"Peaks: {said(list(found))}. Where no workspace is unknown: {said(known)}. Of those that were chosen later: "
        f"{said(later)}.",
        f"Products: equal to torch's counter in {equal} of {len(found)}, but for attention and recurrent layers, of "
        "which torch 2.13 counts none on CPUs.",
    ]


def main() -> None:
    """Prints the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    found: dict[str, dict[str, Any]] = {}
    refused: dict[str, str] = {}
    for name, program in PROGRAMS.items():
        if not chosen.only or any(part.lower() in name.lower() for part in chosen.only):
            print(f"... {name}", file=sys.stderr)
            try:
                found[name] = measured(program)
            except SubclassAotError as error:
                refused[name] = str(error).partition("\n")[0]
    lines = [
        "# What `sa.profile` says, and what is so",
        "",
        (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].strip(),
    ]
    print("\n".join([*lines, "", str(describe()), "", *summary(found), "", *table(found)]))
    print("\n".join(["", *(f"Refused: {name}. {error}" for name, error in refused.items())]).rstrip())


if __name__ == "__main__":
    main()
