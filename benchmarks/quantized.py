"""`make bench-quantized`: the ready-made weights in a Llama in bfloat16; writes `docs/benchmarks/quantized.md`.

Where torchao is installed, its classes stand beside them.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.util
import inspect
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
from subclass_aot.base.whole_files import write_whole
from subclass_aot.testing.benchmark import Budget, Comparison, Side, compare

OUT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "quantized.md"
LAYERS = "model.layers.*"
GROUP = 64

SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 1024,
}
WORDS = 512
"""Of the prompt."""
LONGEST = 64
"""As many words has the cache room for when tokens are decoded."""

Change = Callable[[nn.Module], object]
"""Replaces the linear weights of the layers of a model, in place."""

COMPILERS: dict[str, Callable[[nn.Module], Callable[..., Any]]] = {
    "eager mode": lambda model: model,
    'aot_compile, "eager"': lambda model: sa.aot_compile(model, fw_compiler="eager"),
    'aot_compile, "inductor"': lambda model: sa.aot_compile(model, fw_compiler="inductor"),
    "torch.compile": torch.compile,
}
MOST_OFF = 0.15
"""What a compiled model may be off, as a part of the logits: bfloat16 is rounded at other places, and that grows."""
PHASES = ("decoding", "prefill")


def by(function: Callable[[torch.Tensor], torch.Tensor] | type) -> Change:
    """The change that `quantize_` makes."""
    return lambda model: sa.quantize_(model, function, LAYERS)


def nf4(weight: torch.Tensor) -> torch.Tensor:
    """With blocks of `GROUP`."""
    return sa.NF4Weight.from_float(weight, block=GROUP)


class Adapter(nn.Module):
    """A linear layer beside a product of two thin matrices, as libraries for adapters write it."""

    def __init__(self, layer: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.layer = layer
        self.right, self.left = (
            nn.Linear(a, b, bias=False) for a, b in ((layer.in_features, rank), (rank, layer.out_features))
        )
        self.to(layer.weight.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.left(self.right(x))  # type: ignore[no-any-return]


def by_hand(model: nn.Module) -> None:
    """Puts an adapter beside each linear layer."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear) and "layers" in name:
            adapter = Adapter(layer)
            nn.init.zeros_(adapter.left.weight)
            model.set_submodule(name, adapter)


OURS: dict[str, Change] = {
    "dense": lambda model: None,
    "`Int8Weight`": by(sa.Int8Weight),
    "`Int8DynamicWeight`": by(sa.Int8DynamicWeight),
    "`Float8Weight`": by(sa.Float8Weight.from_float),
    "`Int4Weight`": by(sa.Int4Weight),
    "`NF4Weight`": by(nf4),
    "`Sparse24Weight`": by(sa.Sparse24Weight.from_float),
    "`QuantAwareWeight`": by(lambda weight: sa.QuantAwareWeight(weight)),
    "an adapter by hand, rank 8, on dense": by_hand,
    "`LoraWeight`, rank 8, on dense": by(lambda weight: sa.LoraWeight.beside(weight)),
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
        "torchao `Int8DynamicActivationInt8WeightConfig`": config("Int8DynamicActivationInt8WeightConfig"),
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
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).to(torch.bfloat16).eval()


def reason(error: Exception) -> str:
    """The first line of what was raised."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


CACHE = "cache" if "cache" in inspect.signature(transformers.LlamaForCausalLM.forward).parameters else "past_key_values"
"""What a cache is called as an argument; transformers renamed it."""


class Decoding:
    """A token after another, with a cache of a fixed size, which begins again where it is full."""

    def __init__(self, model: Any, function: Callable[..., Any]) -> None:
        self.model, self.function = model, function
        self.token = torch.zeros(1, 1, dtype=torch.long)
        self._begin()

    def _begin(self) -> None:
        self.cache, self.length = transformers.StaticCache(config=self.model.config, max_cache_len=LONGEST), 1
        self.model(self.token, **{CACHE: self.cache})

    def __call__(self) -> torch.Tensor:
        if self.length == LONGEST:
            self._begin()
        self.length += 1
        return self.function(self.token, **{CACHE: self.cache}).logits  # type: ignore[no-any-return]


def prefill(function: Callable[..., Any], words: torch.Tensor) -> torch.Tensor:
    """Returns the logits of all words, without a cache."""
    return function(words, use_cache=False).logits  # type: ignore[no-any-return]


@torch.no_grad()
def run(
    budget: Budget, sizes: dict[str, int], changes: dict[str, Change], compilers: dict[str, Any], words: int = WORDS
) -> Measured:
    """Measures all changes; the first is what others are compared with."""
    prompt = torch.randint(0, sizes["vocab_size"], (1, words), generator=torch.Generator().manual_seed(0))
    rows: list[Row] = []
    sides: dict[str, Side] = {}
    failed: dict[str, str] = {}
    dense = prefill(llama(sizes), prompt)
    for name, change in changes.items():
        try:
            model = llama(sizes)
            change(model)
            logits = prefill(model, prompt)
        except Exception as error:  # noqa: BLE001
            if name in OURS:
                raise
            failed[name] = reason(error)
            continue
        rows.append(Row(name, linear_bytes(model), float((logits - dense).norm() / dense.norm())))
        for compiler, compiled in compilers.items():
            print(name, compiler, file=sys.stderr, flush=True)
            try:
                function = compiled(model)
                ways = {"decoding": Decoding(model, function), "prefill": functools.partial(prefill, function, prompt)}
                off = (ways["prefill"]() - logits).norm() / logits.norm()
                off_decoding = (Decoding(model, function)() - Decoding(model, model)()).norm() / logits[:, 0].norm()
                if not max(off, off_decoding) < MOST_OFF:
                    raise AssertionError(f"logits are off by {off:.1e} and {off_decoding:.1e}")  # noqa: TRY301
            except Exception as error:  # noqa: BLE001
                if name in OURS:
                    raise
                failed[f"{name}, {compiler}"] = reason(error)
                continue
            sides |= {f"{name}, {compiler}, {phase}": Side(way) for phase, way in ways.items()}
    times = compare({name: side for name, side in sides.items() if name.endswith(PHASES[0])}, budget)
    longer = {name: side for name, side in sides.items() if name.endswith(PHASES[1])}
    more = compare(longer, dataclasses.replace(budget, fewest_rounds=min(3, budget.fewest_rounds)))
    return Measured(rows, Comparison({**times.microseconds, **more.microseconds}), failed)


def markdown(measured: Measured, compilers: dict[str, Any], about: str) -> Iterator[str]:
    """The tables, and below them what did not run."""
    first = measured.rows[0]
    basis = f"{first.name}, {next(iter(compilers))}"
    yield f"Measured on: {about}.\n"
    for phase, what in zip(PHASES, ("a token", "a prompt"), strict=True):
        yield f"### {phase.capitalize()}\n"
        yield f"{basis}: {measured.times.median_us(f'{basis}, {phase}') / 1000:.1f} ms {what}.\n"
        yield f"| linear weights | MB | logits off by | {' | '.join(compilers)} |"
        yield f"|---|---|---|{'---|' * len(compilers)}"
        for row in measured.rows:
            times = []
            for compiler in compilers:
                side = f"{row.name}, {compiler}, {phase}"
                there = side in measured.times.microseconds
                times.append(f"{measured.times.ratio(side, f'{basis}, {phase}').median:.2f}x" if there else "-")
            yield f"| {row.name} | {row.bytes / 1e6:.1f} | {row.off:.1e} | {' | '.join(times)} |"
        yield ""
    if measured.failed:
        yield "What does not run on this machine:\n"
        yield from (f"- {name}: `{why}`" for name, why in measured.failed.items())


def main(arguments: list[str]) -> int:
    """Measures, prints the table and writes it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="where to write; default: docs/benchmarks/quantized.md")
    parser.add_argument("--weights", default="", help="parts of the names of weights to measure, as Int8,Int4")
    parser.add_argument("--compilers", default="", help="a part of the names of compilers to measure beside eager mode")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 1000  # all models are of one code, which torch.compile keeps by that
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    with_torchao = importlib.util.find_spec("torchao") is not None
    changes = {**OURS, **(of_torchao() if with_torchao else {})}
    parts = asked.weights.split(",")
    changes = {n: change for n, change in changes.items() if n == "dense" or any(part in n for part in parts)}
    compilers = {name: made for name, made in COMPILERS.items() if name == "eager mode" or asked.compilers in name}
    measured = run(Budget(seconds=60, fewest_rounds=9), SIZES, changes, compilers)
    facts = machine.describe()
    names = ("date", "commit", "processor", "system", "python", "torch", "threads", "subclass_aot")
    about = [f"{name} {facts[name]}" for name in names] + [f"transformers {version('transformers')}"]
    about += [f"torchao {version('torchao')}"] if with_torchao else ["without torchao"]
    text = "\n".join(markdown(measured, compilers, ", ".join(about))) + "\n"
    write_whole(asked.out, text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
