"""`make bench-quantized`: the ready-made weights in three models in bfloat16; writes `docs/benchmarks/quantized.md`.

Where torchao and quanto are installed, their classes stand beside them.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import transformers

import subclass_aot as sa
from benchmarks import machine
from benchmarks.quantized.models import MODELS, Model
from benchmarks.quantized.weights import OF_EXPERTS, OURS, Change, of_others
from subclass_aot.base.whole_files import write_whole
from subclass_aot.testing.benchmark import Budget, Comparison, Side, compare

OUT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "quantized.md"

Compiler = Callable[[Any], Callable[..., Any]]
COMPILERS: dict[str, Compiler] = {
    "eager mode": lambda model: model,
    '"eager"': lambda model: sa.aot_compile(model, fw_compiler="eager"),
    '"inductor"': lambda model: sa.aot_compile(model, fw_compiler="inductor"),
    "torch.compile": torch.compile,
}
SLOW_TO_COMPILE = ('"inductor"', "torch.compile")
"""These are measured of one sequence alone."""
MOST_OFF = 0.15
"""What a compiled model may be off, as a part of the logits: bfloat16 is rounded at other places, and that grows."""


@dataclass(frozen=True)
class Row:
    """One class.

    Args:
        name: What the weights are.
        bytes: Of all weights but embeddings and heads.
        off: The norm of the difference of the logits, as a part of that of the dense ones.
    """

    name: str
    bytes: int
    off: float


@dataclass(frozen=True)
class Measured:
    """The rows, the times of `name, compiler, way`, and what did not run, with the reason."""

    rows: list[Row]
    times: Comparison
    failed: dict[str, str]


def bytes_of(tensor: torch.Tensor) -> int:
    """Returns the bytes of the dense leaves."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return tensor.nbytes
    parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    return sum(bytes_of(part) for part in parts if isinstance(part, torch.Tensor))


def layer_bytes(model: Any) -> int:
    """Returns the bytes of what the layers of a model hold."""
    kept = itertools.chain(model.named_parameters(), model.named_buffers())
    return sum(bytes_of(tensor.data) for name, tensor in kept if "layer" in name)


def reason(error: Exception) -> str:
    """Returns the first line of what was raised."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


@torch.no_grad()
def run(budget: Budget, kind: Model, changes: dict[str, Change], compilers: dict[str, Compiler]) -> Measured:
    """Measures all changes; the first is what others are compared with."""
    rows: list[Row] = []
    sides: dict[str, Side] = {}
    failed: dict[str, str] = {}
    dense: torch.Tensor | None = None
    for name, change in changes.items():
        try:
            model = kind.made()
            change(model)
            eager = {way: call() for way, call in kind.ways(model, model).items()}
            logits = eager[f"prompt of {kind.prompts[0]}"]
        except Exception as error:  # noqa: BLE001
            if name in OURS:
                raise
            failed[name] = reason(error)
            continue
        dense = logits if dense is None else dense
        rows.append(Row(name, layer_bytes(model), float((logits - dense).norm() / dense.norm())))
        for compiler, compiled in compilers.items():
            print(kind.name, name, compiler, file=sys.stderr, flush=True)
            try:
                sides |= _sides(kind, model, compiled(model), eager, compiler in SLOW_TO_COMPILE, f"{name}, {compiler}")
            except Exception as error:  # noqa: BLE001
                if name in OURS:
                    raise
                failed[f"{name}, {compiler}"] = reason(error)
    times: dict[str, Any] = {}
    for way in kind.ways(kind.made(), lambda **given: None):  # those of one kind in turns
        times |= compare({name: side for name, side in sides.items() if name.endswith(f", {way}")}, budget).microseconds
    return Measured(rows, Comparison(times), failed)


def _sides(
    kind: Model, model: Any, function: Callable[..., Any], eager: dict[str, torch.Tensor], is_slow: bool, name: str
) -> dict[str, Side]:
    """Returns what is measured of a compiled model, after a look at what it gives."""
    ways = kind.ways(model, function)
    chosen = {way: ways[way] for way in list(ways)[: 1 if is_slow else None]}
    for way, call in chosen.items():
        off = (call() - eager[way]).norm() / eager[way].norm()
        if not off < MOST_OFF:
            raise AssertionError(f"logits of {way} are off by {off:.1e}")
    return {f"{name}, {way}": Side(call) for way, call in chosen.items()}


def markdown(kind: Model, measured: Measured, compilers: Iterable[str]) -> Iterator[str]:
    """Yields a table for each compiler, and below them what did not run."""
    first, of_eager = measured.rows[0], next(iter(compilers))
    of_way = {name.rpartition(", ")[2]: None for name in measured.times.microseconds}
    for compiler in compilers:
        ways = [way for way in of_way if f"{first.name}, {compiler}, {way}" in measured.times.microseconds]
        yield f"### {kind.name}, {compiler}\n"
        if compiler == of_eager:
            times = (f"{way} {measured.times.median_us(f'{first.name}, {of_eager}, {way}') / 1000:.1f}" for way in ways)
            yield f"Dense, milliseconds: {', '.join(times)}.\n"
        yield f"| linear weights | MB | logits off by | {' | '.join(ways)} |"
        yield f"|---|---|---|{'---|' * len(ways)}"
        for row in measured.rows:
            cells = []
            for way in ways:
                side, basis = f"{row.name}, {compiler}, {way}", f"{first.name}, {of_eager}, {way}"
                there = side in measured.times.microseconds
                cells.append(f"{measured.times.ratio(side, basis).median:.2f}x" if there else "-")
            yield f"| {row.name} | {row.bytes / 1e6:.1f} | {row.off:.1e} | {' | '.join(cells)} |"
        yield ""
    if measured.failed:
        yield "What does not run on this machine:\n"
        yield from (f"- {name}: `{why}`" for name, why in measured.failed.items())
        yield ""


def _versions() -> Iterator[str]:
    for name in ("transformers", "torchao", "optimum-quanto"):
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"without {name}"


def main(arguments: list[str]) -> int:
    """Measures, prints the tables and writes them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="where to write; default: docs/benchmarks/quantized.md")
    parser.add_argument("--models", default="", help="a part of the names of models")
    parser.add_argument("--weights", default="", help="parts of the names of weights to measure, as Int8,Int4")
    parser.add_argument("--compilers", default="", help="a part of the names of compilers to measure beside eager mode")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 1000  # all models are of one code, which torch.compile keeps by that
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    parts, others = asked.weights.split(","), of_others()
    compilers = {name: made for name, made in COMPILERS.items() if name == "eager mode" or asked.compilers in name}
    budget = Budget(seconds=1, block_us=1, fewest_rounds=asked.rounds, most_rounds=4 * asked.rounds)
    facts = machine.describe()
    names = ("date", "commit", "processor", "system", "python", "torch", "threads", "subclass_aot")
    lines = [f"Measured on: {', '.join([*(f'{name} {facts[name]}' for name in names), *_versions()])}.\n"]
    for kind in MODELS:
        if asked.models in kind.name:
            is_first = kind is MODELS[0]
            ours = OURS if is_first else OF_EXPERTS
            changes = {n: c for n, c in {**ours, **others}.items() if n == "dense" or any(part in n for part in parts)}
            chosen = {n: c for n, c in compilers.items() if is_first or n not in SLOW_TO_COMPILE}
            lines += markdown(kind, run(budget, kind, changes, chosen), chosen)
    text = "\n".join(lines)
    write_whole(asked.out, text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
