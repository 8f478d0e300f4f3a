"""Draws `docs/plots/`: figures that the tables of `docs/benchmarks/` have, and two that are drawn or measured here.

    python -m benchmarks.plots

The first call over layers is measured where `docs/plots/first_call.json` is missing, and read from there else.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.base.whole_files import write_whole

DOCS = Path(__file__).resolve().parent.parent / "docs"
LAYERS = (2, 4, 8, 16, 32)
WEIGHTS = {
    "dense": "dense",
    "NF4Weight": "NF4\nWeight",
    "torchao Int8WeightOnlyConfig": "torchao's\nint8",
    "Int8DynamicWeight": "Int8\nDynamic\nWeight",
    "Int8Weight": "Int8\nWeight",
    "Int4Weight": "Int4\nWeight",
}
"""The linear weights that are drawn, of all in the table, and what they are called in the plot."""
OURS, TORCH, OTHER, GREY = "#c2410c", "#1d4ed8", "#0f766e", "#737373"

Draw = Callable[[Any], None]


def rows(table: str) -> Iterator[list[str]]:
    """Yields the cells of each row of the tables in a Markdown text.

    >>> list(rows("| a | b |\\n| --- | --- |\\n| 1 | 2 |"))
    [['a', 'b'], ['1', '2']]
    """
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        if line.startswith("|") and not re.fullmatch(r"[-:]+", cells[0]):
            yield cells


def calls(table: str) -> dict[str, dict[int, float]]:
    """Returns the microseconds of an inference call, by what was called and the number of wrappers.

    Args:
        table: The text of `docs/benchmarks/table.md`.
    """
    found: dict[str, dict[int, float]] = {}
    for subject, case, against, ours, theirs, *_ in (row for row in rows(table) if len(row) > 5):
        count, _, cls = case.partition(" wrappers, ")
        if subject == "call, inference" and cls == "torch's TwoTensor":
            found.setdefault("aot_compile", {})[int(count)] = microseconds(ours)
            found.setdefault(against, {})[int(count)] = microseconds(theirs)
    return found


def microseconds(time: str) -> float:
    """Returns a time of a table.

    >>> microseconds("1.5 ms"), microseconds("20 us"), microseconds("250 ns")
    (1500.0, 20.0, 0.25)
    """
    number, unit = time.split()
    return float(number) * {"ns": 1e-3, "us": 1.0, "ms": 1e3}[unit]


def tokens(table: str) -> dict[str, dict[str, float]]:
    """Returns the tokens per second of decoding, by weights and by what ran them.

    Args:
        table: The text of `docs/benchmarks/quantized.md`.
    """
    dense = re.search(r"Dense, milliseconds: 1 at once ([\d.]+)", table)
    assert dense is not None
    speeds: dict[str, dict[str, float]] = {}
    for name in ('"eager"', '"inductor"', "torch.compile"):
        head, *lines = rows(table.partition(f"### Llama, {name}\n")[2].partition("###")[0])
        at = head.index("1 at once")
        for line in lines:
            if re.fullmatch(r"[\d.]+x", line[at]):
                of_weights = speeds.setdefault(line[0].replace("`", ""), {})
                of_weights[name] = 1000 / float(dense[1]) * float(line[at].rstrip("x"))
    speeds = {weights: of for weights, of in speeds.items() if len(of) == 3}
    assert speeds
    return speeds


def first_calls(layers: Sequence[int] = LAYERS) -> dict[str, dict[int, float]]:
    """Returns the seconds of processor time of a first step of training, by what compiled it and its layers."""
    found: dict[str, dict[int, float]] = {"torch.compile, aot_eager": {}, "aot_compile": {}}
    for name, times in found.items():
        for count in (layers[0], *layers):  # the first imports what it needs
            torch.compiler.reset()
            blocks = (nn.TransformerEncoderLayer(64, 4, 128, dropout=0, batch_first=True) for _ in range(count))
            model = sa.quantize_(nn.Sequential(*blocks), sa.Int8Weight)
            aot_eager = name != "aot_compile"
            compiled = torch.compile(model, backend="aot_eager") if aot_eager else sa.aot_compile(model)
            x = torch.randn(2, 16, 64, requires_grad=True)
            gc.collect()  # else what the one side has left is collected while the other one is timed
            start = process_time()
            compiled(x).sum().backward()
            times[count] = round(process_time() - start, 3)
    return found


def draw_calls(axes: Any) -> None:
    """Draws the cost of a call over the number of wrappers."""
    found = calls((DOCS / "benchmarks" / "table.md").read_text())
    colors = {"aot_compile": OURS, 'torch.compile(backend="aot_eager")': TORCH, "aot_function": OTHER, "eager": GREY}
    for name, color in colors.items():
        axes.plot(*zip(*sorted(found[name].items()), strict=True), "o-", color=color, label=name)
    axes.set(xscale="log", yscale="log", xlabel="wrappers in a call", ylabel="microseconds", title="A call")


def draw_tokens(axes: Any) -> None:
    """Draws the tokens per second of a Llama with quantized weights."""
    found = tokens((DOCS / "benchmarks" / "quantized.md").read_text())
    for number, (name, color) in enumerate(zip(found["dense"], (GREY, OURS, TORCH), strict=True)):
        places = [place + (number - 1) * 0.27 for place in range(len(WEIGHTS))]
        axes.bar(places, [found[weights][name] for weights in WEIGHTS], 0.25, color=color, label=name)
    axes.set_xticks(range(len(WEIGHTS)), list(WEIGHTS.values()))
    axes.set(ylabel="tokens per second", title="Decoding, Llama of width 1024, bfloat16, one thread")


def draw_first_calls(axes: Any) -> None:
    """Draws the first call over layers, measured if it was not yet."""
    kept = DOCS / "plots" / "first_call.json"
    if not kept.exists():
        write_whole(kept, json.dumps(first_calls(), indent=1) + "\n")
    for (name, times), color in zip(json.loads(kept.read_text()).items(), (TORCH, OURS), strict=True):
        axes.plot([int(count) for count in times], list(times.values()), "o-", color=color, label=name)
    axes.set(xlabel="layers with int8 weights", ylabel="seconds", ylim=0, title="First step of training")


def memory_of_a_step() -> Any:
    """Returns the picture of a training step of a checkpointed Llama, as `sa.profile` draws it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from subclass_aot.cost.profiling.picture import figure_of

    with torch.device("meta"):
        config = LlamaConfig(
            hidden_size=2048, intermediate_size=8192, num_hidden_layers=8, num_attention_heads=16, use_cache=False
        )
        model = LlamaForCausalLM(config).to(torch.bfloat16).train()
        model.gradient_checkpointing_enable()
        words = torch.zeros(4, 1024, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(model: Any, optimizer: Any, words: torch.Tensor) -> None:
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return figure_of(sa.profile(step, model, optimizer, words, device="H100"), over="time", columns=90)


def drawn(draw: Draw) -> Any:
    """Returns a figure with one plot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    draw(axes)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


PLOTS: dict[str, Callable[[], Any]] = {
    "call": lambda: drawn(draw_calls),
    "tokens": lambda: drawn(draw_tokens),
    "first_call": lambda: drawn(draw_first_calls),
    "memory": memory_of_a_step,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws all plots, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plots", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"which: {', '.join(PLOTS)}; all if left out")
    parser.add_argument("--out", type=Path, default=DOCS / "plots", help="the folder to write to")
    chosen = parser.parse_args(arguments)

    import matplotlib

    chosen.out.mkdir(parents=True, exist_ok=True)
    # The same figures make the same file.
    with matplotlib.rc_context({"svg.hashsalt": "subclass_aot", "svg.fonttype": "none", "font.size": 9}):
        for name in chosen.names or PLOTS:
            figure = PLOTS[name]()
            figure.savefig(chosen.out / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
