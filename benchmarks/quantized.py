"""`python -m benchmarks.quantized`: the ready-made weights in a small Llama; writes `docs/benchmarks/quantized.md`.

Where torchao is installed, its weight-only classes stand beside them.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

import subclass_aot as sa
from benchmarks import machine
from subclass_aot.benchmark import Budget, Comparison, Side, compare

OUT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "quantized.md"
LAYERS = "model.layers.*"
GROUP = 64

SIZES = {
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 512,
}
WORDS = 32

Change = Callable[[nn.Module], object]
"""Replaces the linear weights of the layers of a model, in place."""

COMPILERS: dict[str, Callable[[nn.Module], Callable[..., Any]]] = {
    "eager mode": lambda model: model,
    'aot_compile, "eager"': lambda model: sa.aot_compile(model, fw_compiler="eager"),
    'aot_compile, "inductor"': lambda model: sa.aot_compile(model, fw_compiler="inductor"),
}


def by(function: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """The change that `quantize_` makes."""
    return lambda model: sa.quantize_(model, function, LAYERS)


def nf4(weight: torch.Tensor) -> torch.Tensor:
    """With blocks of `GROUP`."""
    return sa.NF4Weight.from_float(weight, block=GROUP)


OURS: dict[str, Change] = {
    "dense": lambda model: None,
    "`Int8Weight`": by(sa.Int8Weight.from_float),
    "`Float8Weight`": by(sa.Float8Weight.from_float),
    "`Int4Weight`": by(functools.partial(sa.Int4Weight.from_float, group=GROUP)),
    "`NF4Weight`": by(nf4),
    "`Sparse24Weight`": by(sa.Sparse24Weight.from_float),
    "`QuantAwareWeight`": by(lambda weight: sa.QuantAwareWeight(weight)),
    "`LoraWeight`, rank 8, on `NF4Weight`": by(lambda weight: sa.LoraWeight.beside(nf4(weight))),
}


def of_torchao() -> dict[str, Change]:
    """Its weight-only classes, as its own functions make them."""
    from torchao import quantization

    def config(name: str, **options: object) -> Change:
        def change(model: nn.Module) -> None:
            made = getattr(quantization, name)(**options)
            quantization.quantize_(model, made, lambda layer, path: isinstance(layer, nn.Linear) and "layers" in path)

        return change

    return {
        "torchao `Int8WeightOnlyConfig`": config("Int8WeightOnlyConfig"),
        "torchao `Float8WeightOnlyConfig`": config("Float8WeightOnlyConfig"),
        "torchao `Int4WeightOnlyConfig`": config("Int4WeightOnlyConfig", group_size=GROUP),
        'torchao `Int4WeightOnlyConfig`, "plain_int32"': config(
            "Int4WeightOnlyConfig", group_size=GROUP, int4_packing_format="plain_int32"
        ),
        "torchao `IntxWeightOnlyConfig`, int4": config(
            "IntxWeightOnlyConfig", weight_dtype=torch.int4, granularity=quantization.PerGroup(GROUP)
        ),
        "torchao `to_nf4`": by(lambda weight: quantization.to_nf4(weight, GROUP, 256)),
    }


@dataclass(frozen=True)
class Row:
    """One class.

    Args:
        name: What the weights are.
        bytes: Of the linear weights of the layers.
        off: The norm of the difference of the logits, as a part of that of the dense ones.
    """

    name: str
    bytes: int
    off: float


@dataclass(frozen=True)
class Measured:
    """The rows, the times of `name, compiler`, and what did not run, with the reason."""

    rows: list[Row]
    times: Comparison
    failed: dict[str, str]


def bytes_of(tensor: torch.Tensor) -> int:
    """Of the dense leaves."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return tensor.nbytes
    parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    return sum(bytes_of(part) for part in parts if isinstance(part, torch.Tensor))


def linear_bytes(model: nn.Module) -> int:
    """Of the linear weights of the layers."""
    linear = [layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and "layers" in name]
    return sum(bytes_of(layer.weight.data) for layer in linear)


def llama(sizes: dict[str, int]) -> Any:
    """A model with random weights, the same each time."""
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval()


def reason(error: Exception) -> str:
    """The first line of what was raised."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


@torch.no_grad()
def run(budget: Budget, sizes: dict[str, int], changes: dict[str, Change], compilers: dict[str, Any]) -> Measured:
    """Measures all changes; the first is what others are compared with."""
    words = torch.randint(0, sizes["vocab_size"], (1, WORDS), generator=torch.Generator().manual_seed(0))
    rows: list[Row] = []
    sides: dict[str, Side] = {}
    failed: dict[str, str] = {}
    dense = llama(sizes)(words, use_cache=False).logits
    for name, change in changes.items():
        print(name, file=sys.stderr, flush=True)
        try:
            model = llama(sizes)
            change(model)
            logits = model(words, use_cache=False).logits
        except Exception as error:  # noqa: BLE001
            if name in OURS:
                raise
            failed[name] = reason(error)
            continue
        rows.append(Row(name, linear_bytes(model), float((logits - dense).norm() / dense.norm())))
        for compiler, compiled in compilers.items():
            function = compiled(model)
            try:
                torch.testing.assert_close(function(words, use_cache=False).logits, logits, rtol=1e-3, atol=1e-4)
            except Exception as error:  # noqa: BLE001
                if name in OURS:
                    raise
                failed[f"{name}, {compiler}"] = reason(error)
                continue
            sides[f"{name}, {compiler}"] = Side(function, (words, None, None, None, None, None, False))
    return Measured(rows, compare(sides, budget), failed)


def markdown(measured: Measured, compilers: dict[str, Any], about: str) -> Iterator[str]:
    """The table, and below it what did not run."""
    first = measured.rows[0]
    basis = f"{first.name}, {next(iter(compilers))}"
    yield f"Measured on: {about}.\n"
    yield f"{basis}: {measured.times.median_us(basis) / 1000:.1f} ms.\n"
    yield f"| linear weights | MB | of dense | logits off by | {' | '.join(compilers)} |"
    yield f"|---|---|---|---|{'---|' * len(compilers)}"
    for row in measured.rows:
        times = []
        for compiler in compilers:
            side = f"{row.name}, {compiler}"
            there = side in measured.times.microseconds
            times.append(f"{1 / measured.times.ratio(side, basis).median:.2f}" if there else "-")
        share = f"{row.bytes / first.bytes:.3f}"
        yield f"| {row.name} | {row.bytes / 1e6:.2f} | {share} | {row.off:.1e} | {' | '.join(times)} |"
    if measured.failed:
        yield "\nWhat does not run on this machine:\n"
        yield from (f"- {name}: `{why}`" for name, why in measured.failed.items())


def main(arguments: list[str]) -> int:
    """Measures, prints the table and writes it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="where to write; default: docs/benchmarks/quantized.md")
    out = parser.parse_args(arguments).out
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    with_torchao = importlib.util.find_spec("torchao") is not None
    changes = {**OURS, **(of_torchao() if with_torchao else {})}
    measured = run(Budget(seconds=90, fewest_rounds=11), SIZES, changes, COMPILERS)
    facts = machine.describe()
    names = ("processor", "system", "python", "torch", "threads", "subclass_aot")
    about = [f"{name} {facts[name]}" for name in names] + [f"transformers {version('transformers')}"]
    about += [f"torchao {version('torchao')}"] if with_torchao else ["without torchao"]
    text = "\n".join(markdown(measured, COMPILERS, ", ".join(about))) + "\n"
    out.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
