"""A step of training and inference with `"eager"`, beside eager mode itself: what is compiled ought never to be slower.

    python -m benchmarks.steps --keep build/steps.json > docs/benchmarks/steps.md

The models of the zoo have hardly any arithmetic; those of widths 256 and 512 and those of this file have more. A step
is forward and backward, of a copy of the model for each side, in turns.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

import subclass_aot as sa
from benchmarks import memory, wide
from benchmarks.demo.digits import quantized_vit
from benchmarks.demo.lockstep import WithLoss
from benchmarks.machine import describe
from subclass_aot.base.whole_files import write_whole
from subclass_aot.testing.benchmark import Budget, Side, compare
from tests.models.architectures import ARCHITECTURES, make

Inputs = dict[str, Any]
Model = tuple[Callable[[], nn.Module], Callable[[], Inputs]]
"""Makes a model, and what it is called with; it gives a loss, or something that has one."""

OURS, EAGER = '"eager"', "eager"
KINDS = ("training", "inference")
DEMO, DEMO_AT_LEAST = "demo", 1.15
WIDE_AT_LEAST = 0.98


class Attention(nn.Module):
    """Normalized, causal, with a projection before and after it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = [y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.into(self.norm(x)).chunk(3, -1)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        added: Tensor = x + self.out(mixed.transpose(1, 2).flatten(2))
        return added


class Gated(nn.Module):
    """A perceptron with SiLU and a gate."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(width, hidden), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return added


class UNet(nn.Module):
    """Two levels of convolutions with group norms, and what is skipped."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = self._block(3, channels)
        self.down = self._block(channels, 2 * channels)
        self.middle = self._block(2 * channels, 2 * channels)
        self.up = self._block(4 * channels, channels)
        self.last = nn.Conv2d(2 * channels, 3, 1)

    def _block(self, given: int, made: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(given, made, 3, padding=1), nn.GroupNorm(8, made), nn.SiLU(),
            nn.Conv2d(made, made, 3, padding=1), nn.GroupNorm(8, made), nn.SiLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        down = self.down(F.avg_pool2d(first, 2))
        middle = F.interpolate(self.middle(F.avg_pool2d(down, 2)), scale_factor=2.0)
        up = F.interpolate(self.up(torch.cat([middle, down], 1)), scale_factor=2.0)
        made: Tensor = self.last(torch.cat([up, first], 1))
        return made


class Recurrent(nn.Module):
    """A recurrent layer, of which the results are taken."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x)[0]
        return made


class Squared(nn.Module):
    """The mean square of what a model gives is its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        loss: Tensor = self.model(x).square().mean()
        return loss


def of(build: Callable[[], nn.Module], *size: int) -> Model:
    """A model that takes one tensor."""
    return lambda: Squared(build()), lambda: {"x": torch.randn(size)}


def demo(batch: int) -> Model:
    """The model of the demo, on pictures of digits."""
    return (
        lambda: WithLoss(quantized_vit()),
        lambda: {"images": torch.rand(batch, 1, 8, 8), "labels": torch.arange(batch) % 10},
    )


def layers(make_one: Callable[[], nn.Module], count: int = 4) -> Callable[[], nn.Module]:
    """So many of them, one after the other."""
    return lambda: nn.Sequential(*[make_one() for _ in range(count)])


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 64))


OWN: dict[str, Model] = {
    DEMO: demo(96),
    "demo, one picture": demo(1),
    "attention, 8 x 128 words": of(layers(lambda: Attention(256, 8)), 8, 128, 256),
    "attention, 1 x 16 words": of(layers(lambda: Attention(256, 8)), 1, 16, 256),
    "gated perceptron, 1,024 rows": of(layers(lambda: Gated(256, 768)), 1024, 256),
    "gated perceptron, 1 row": of(layers(lambda: Gated(256, 768)), 1, 256),
    "perceptron with SiLU, 4,096 rows": of(_perceptron, 4096, 64),
    "perceptron with SiLU, 32 rows": of(_perceptron, 32, 64),
    "perceptron with SiLU, 1 row": of(_perceptron, 1, 64),
    "UNet, 4 pictures": of(lambda: UNet(32), 4, 3, 64, 64),
    "UNet, 1 small picture": of(lambda: UNet(16), 1, 3, 16, 16),
    "LSTM, 32 steps": of(lambda: Recurrent(nn.LSTM(64, 128, 2)), 32, 16, 64),
    "LSTM, 4 steps of 1": of(lambda: Recurrent(nn.LSTM(32, 32)), 4, 1, 32),
    "GRU, 32 steps": of(lambda: Recurrent(nn.GRU(64, 128, 2)), 32, 16, 64),
    "transformer layer, 8 x 64 words": of(lambda: nn.TransformerEncoderLayer(128, 4, 256), 64, 8, 128),
    "one linear layer": of(lambda: nn.Linear(16, 16), 2, 16),
}


def models() -> dict[str, Model]:
    """Returns those of this file, those of width 512, those of width 256 of the benchmark of memory, and the zoo."""
    zoo: dict[str, Model] = {
        name: (lambda name=name: make(name), lambda inputs=one.inputs: inputs(2))  # type: ignore[misc]
        for name, one in ARCHITECTURES.items()
    }
    of_512 = {f"{name}, {wide.WIDTH}": model for name, model in wide.MODELS.items()}
    return {**OWN, **of_512, **{f"{name}, wide": model for name, model in memory.MODELS.items()}, **zoo}


def step(function: Callable[..., Any], given: Inputs, parameters: Iterable[Tensor]) -> None:
    """Runs forward and backward, and drops the gradients."""
    made = function(**given)
    (made if isinstance(made, Tensor) else made.loss).backward()
    for parameter in parameters:
        parameter.grad = None


@torch.no_grad()
def infer(function: Callable[..., Any], given: Inputs) -> object:
    """Runs forward alone."""
    return function(**given)


def measure(model: Model, budget: Budget) -> dict[str, dict[str, float]]:
    """Returns, for training and inference, the median milliseconds of both sides and how many times as fast ours is."""
    build, inputs = model
    torch.manual_seed(0)
    made, given = build().train(), inputs()
    ours = copy.deepcopy(made)
    sides: dict[str, Callable[..., Any]] = {EAGER: made, OURS: sa.aot_compile(ours)}
    found = {}
    for kind in KINDS:
        if kind == "training":
            parameters = {EAGER: list(made.parameters()), OURS: list(ours.parameters())}
            ways = {side: Side(step, (call, given, parameters[side])) for side, call in sides.items()}
        else:
            made.eval(), ours.eval()
            ways = {side: Side(infer, (call, given)) for side, call in sides.items()}
        times = compare(ways, budget)
        ratio = times.ratio(OURS, EAGER)
        found[kind] = {
            "eager_ms": times.median_us(EAGER) / 1e3, "ours_ms": times.median_us(OURS) / 1e3,
            "ratio": ratio.median, "low": ratio.low, "high": ratio.high,
        }  # fmt: skip
    return found


def table(rows: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    """Yields the lines of the table."""
    yield "| model | " + " | ".join(f"{kind}: eager mode | compiled | times as fast" for kind in KINDS) + " |"
    yield "|---|" + "---:|" * 3 * len(KINDS)
    for name, found in rows.items():
        cells = []
        for each in found.values():
            spread = f"{each['ratio']:.2f} ({each['low']:.2f} to {each['high']:.2f})"
            cells += [f"{each['eager_ms']:.3g} ms", f"{each['ours_ms']:.3g} ms", spread]
        yield f"| {name} | " + " | ".join(cells) + " |"


def summary(rows: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    """Yields what the table comes to."""
    for kind in KINDS:
        ratios = sorted((found[kind]["ratio"], name) for name, found in rows.items())
        slower = [f"{name} ({ratio:.2f})" for ratio, name in ratios if ratio < 1]
        yield (
            f"- {kind}: {ratios[len(ratios) // 2][0]:.2f} times as fast as eager mode in the median of {len(ratios)}; "
            f"below 1.0: {', '.join(slower) or 'none'}."
        )
    of_512 = [
        each["ratio"] for name, found in rows.items() if name.endswith(f", {wide.WIDTH}") for each in found.values()
    ]
    if of_512:
        yield f"- At width {wide.WIDTH}, a step ought to be {WIDE_AT_LEAST} times as fast: {min(of_512):.2f} at worst."
    if DEMO in rows:
        yield f"- The demo's step ought to be {DEMO_AT_LEAST} times as fast: {rows[DEMO]['training']['ratio']:.2f}."


def main(arguments: Iterable[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=models(), help="a model; may be given several times")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long each comparison takes")
    parser.add_argument("--keep", type=Path, help="a file that has what was measured, and gets what is measured now")
    options = parser.parse_args(None if arguments is None else list(arguments))
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kept = options.keep is not None and options.keep.exists()
    rows: dict[str, Any] = json.loads(options.keep.read_text()) if kept else {}
    every = models()
    for name in options.only or every:
        if name not in rows:
            rows[name] = measure(every[name], Budget(seconds=options.seconds, block_us=4000.0))
            print(name, *(f"{kind} {found['ratio']:.2f}" for kind, found in rows[name].items()), file=sys.stderr)
            if options.keep is not None:
                write_whole(options.keep, json.dumps(rows))
    print(f"{describe()}\n")
    print("\n".join([*summary(rows), "", *table(rows)]))


if __name__ == "__main__":
    main()
