"""Inductor behind this library, beside `torch.compile`, on every model of the zoo: NaN, compilations, first call, step.

    python -m benchmarks.inductor > docs/benchmarks/inductor.md

Each side trains a copy of one model on the same batches. A first call is forward and backward with an empty cache, by
processor time of this process and of the compilers that it starts. Steps are measured in turns. Compilations are the
graphs that inductor lowers in steps with three batch sizes.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from torch import nn

import subclass_aot as sa
from benchmarks import memory
from benchmarks.machine import describe
from benchmarks.models import step
from subclass_aot.base.whole_files import write_whole
from subclass_aot.testing.benchmark import Budget, Side, compare
from tests.models.architectures import ARCHITECTURES, make

Measured = dict[str, dict[str, Any]]

TORCH, OURS, DYNAMO = "torch.compile", "aot_compile", 'backend="subclass_aot"'
SIDES: dict[str, Callable[[nn.Module], Any]] = {
    TORCH: torch.compile,
    OURS: lambda model: sa.aot_compile(model, fw_compiler="inductor"),
    DYNAMO: lambda model: torch.compile(model, backend="subclass_aot", options={"fw_compiler": "inductor"}),
}
BATCHES = (2, 3, 4)


def models() -> dict[str, tuple[Callable[[], Any], Callable[[int], dict[str, Any]]]]:
    """Returns the zoo, and the models of width 256 of the benchmark of memory, which have one batch size."""
    small = {name: (lambda name=name: make(name), ARCHITECTURES[name].inputs) for name in ARCHITECTURES}
    wide = {f"{name}, wide": (build, lambda batch, i=inputs: i()) for name, (build, inputs) in memory.MODELS.items()}
    return {**small, **wide}


def cpu_seconds() -> float:
    """Returns the processor time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Counts the graphs that inductor lowers within the block."""
    from torch._inductor.graph import GraphLowering

    count = [0]
    lower = GraphLowering.run

    def run(self: Any, *args: Any) -> Any:
        count[0] += 1
        return lower(self, *args)

    GraphLowering.run = run  # type: ignore[method-assign]
    try:
        yield count
    finally:
        GraphLowering.run = lower  # type: ignore[method-assign]


def measure(name: str, budget: Budget) -> Measured:
    """Measures every side of one model."""
    from torch._dynamo.pgo import reset_code_state
    from torch._inductor.utils import fresh_cache

    build, inputs = models()[name]
    torch.manual_seed(0)
    model = build().train()
    found: Measured = {}
    steps = {}
    torch.compiler.reset()
    for side, compile_model in SIDES.items():
        reset_code_state()  # else Dynamo begins with the sizes that changed on the side before as symbols
        own = copy.deepcopy(model)
        given = inputs(2)
        with fresh_cache(), counted() as count:
            call = compile_model(own)
            before = cpu_seconds()
            try:
                step(call, given, own)
                first = cpu_seconds() - before
                for batch in BATCHES[1:]:
                    step(call, inputs(batch), own)
            except Exception as error:
                found[side] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"}
                continue
        gradients = [p.grad for p in own.parameters() if p.grad is not None]
        finite = all(bool(torch.as_tensor(g).isfinite().all()) for g in gradients)
        found[side] = {"first_s": first, "compilations": count[0], "finite": finite}
        steps[side] = Side(step, (call, given, own))
    times = compare(steps, budget).microseconds
    for side, taken in times.items():
        found[side]["step_us"] = median(taken)
    return found


def table(rows: Mapping[str, Measured]) -> Iterator[str]:
    """Yields the lines of the table; ratios are ours by those of `torch.compile`."""
    head = ["first call", "step", "graphs", "finite"]
    columns = [f"{word}, {side}" for side in (OURS, DYNAMO) for word in head]
    yield f"| model | {TORCH}: first call | step | graphs | " + " | ".join(columns) + " |"
    yield "|---|" + "---:|" * (3 + len(columns))
    for name, found in rows.items():
        torchs = found[TORCH]
        if "error" in torchs:
            cells = [torchs["error"], "", ""]
        else:
            cells = [f"{torchs['first_s']:.1f} s", f"{torchs['step_us'] / 1e3:.2f} ms", str(torchs["compilations"])]
        for side in (OURS, DYNAMO):
            ours = found[side]
            if "error" in ours:
                cells += [ours["error"], "", "", ""]
                continue
            ratios = [f"{ours[key] / torchs[key]:.2f}" if key in torchs else "" for key in ("first_s", "step_us")]
            cells += [*ratios, str(ours["compilations"]), "yes" if ours["finite"] else "NO"]
        yield f"| {name} | " + " | ".join(cells) + " |"


def summary(rows: Mapping[str, Measured]) -> Iterator[str]:
    """Yields what the table comes to."""
    for side in (OURS, DYNAMO):
        pairs = [
            (found[side], found[TORCH]) for found in rows.values() if not {"error"} & {*found[side], *found[TORCH]}
        ]
        steps = sorted(ours["step_us"] / torchs["step_us"] for ours, torchs in pairs)
        first = sorted(ours["first_s"] / torchs["first_s"] for ours, torchs in pairs)
        more = sum(ours["compilations"] > torchs["compilations"] for ours, torchs in pairs)
        failed = [name for name, found in rows.items() if "error" in found[side] or not found[side]["finite"]]
        within, quick = sum(ratio <= 1 for ratio in steps), sum(ratio <= 0.9 for ratio in first)
        names = f": {', '.join(failed)}" if failed else ""
        yield (
            f"- `{side}`: a step takes {median(steps):.2f}x of `{TORCH}`'s (at most 1.0x in {within} of {len(steps)}, "
            f"at the most {steps[-1]:.2f}x), a first call {median(first):.2f}x (at most 0.9x in {quick} of "
            f"{len(first)}, at the most {first[-1]:.2f}x); more graphs are compiled for {more} models; {len(failed)} "
            f"fail or are not finite{names}."
        )


def main(arguments: Iterable[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=models(), help="a model; may be given several times")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long the steps of each model are measured")
    parser.add_argument("--keep", type=Path, help="a file that has what was measured, and gets what is measured now")
    options = parser.parse_args(None if arguments is None else list(arguments))
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kept = options.keep is not None and options.keep.exists()
    rows: dict[str, Measured] = json.loads(options.keep.read_text()) if kept else {}
    for name in options.only or models():
        if name not in rows:
            rows[name] = measure(name, Budget(seconds=options.seconds))
            print(name, json.dumps(rows[name]), file=sys.stderr, flush=True)
            if options.keep is not None:
                write_whole(options.keep, json.dumps(rows))
    print(f"{describe()}\n")
    print("\n".join([*summary(rows), "", *table(rows)]))


if __name__ == "__main__":
    main()
