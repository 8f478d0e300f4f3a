"""What becomes of the linear weights of a model: classes of this library, and of others where they are installed."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import subclass_aot as sa

LAYERS = "*layer*"
"""A pattern of the linear layers that are replaced, and of the weights of experts; a head is in none."""
GROUP = 64

Change = Callable[[nn.Module], object]
"""Replaces the linear weights of the layers of a model, in place."""


def is_replaced(layer: nn.Module, path: str) -> bool:
    """Returns whether a module is one of those linear layers."""
    return isinstance(layer, nn.Linear) and "layer" in path


def by(function: Callable[[torch.Tensor], torch.Tensor] | type) -> Change:
    """Returns the change that `quantize_` makes."""
    return lambda model: sa.quantize_(model, {LAYERS: function})


def nf4(weight: torch.Tensor) -> torch.Tensor:
    """Rounds with blocks of `GROUP`."""
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
        if is_replaced(layer, name):
            adapter = Adapter(layer)  # type: ignore[arg-type]
            nn.init.zeros_(adapter.left.weight)
            model.set_submodule(name, adapter)


OF_EXPERTS: dict[str, Change] = {
    "dense": lambda model: None,
    "`Int8Weight`": by(sa.Int8Weight),
    "`Float8Weight`": by(sa.Float8Weight.from_float),
    "`Int4Weight`": by(sa.Int4Weight),
    "`NF4Weight`": by(nf4),
}
"""Those that take the weights of experts, of three dims, too."""

OURS: dict[str, Change] = {
    **OF_EXPERTS,
    "`Int8DynamicWeight`": by(sa.Int8DynamicWeight),
    "`Sparse24Weight`": by(sa.Sparse24Weight.from_float),
    "`QuantAwareWeight`": by(lambda weight: sa.QuantAwareWeight(weight)),
    "an adapter by hand, rank 8, on dense": by_hand,
    "`LoraWeight`, rank 8, on dense": by(lambda weight: sa.LoraWeight.beside(weight)),
    "`LoraWeight`, rank 8, on `NF4Weight`": by(lambda weight: sa.LoraWeight.beside(nf4(weight))),
}


def of_others() -> dict[str, Change]:
    """Returns what the libraries that are installed have."""
    return {**(_of_torchao() if _is_there("torchao") else {}), **(_of_quanto() if _is_there("optimum") else {})}


def _is_there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _of_torchao() -> dict[str, Change]:
    """Returns its weight-only classes, as its own functions make them."""
    from torchao import quantization

    def config(name: str, **options: object) -> Change:
        def change(model: nn.Module) -> None:
            quantization.quantize_(model, getattr(quantization, name)(**options), is_replaced)

        return change

    of_group = {"weight_dtype": torch.int4, "granularity": quantization.PerGroup(GROUP)}
    return {
        "torchao `Int8WeightOnlyConfig`": config("Int8WeightOnlyConfig"),
        "torchao `Int8DynamicActivationInt8WeightConfig`": config("Int8DynamicActivationInt8WeightConfig"),
        "torchao `Float8WeightOnlyConfig`": config("Float8WeightOnlyConfig"),
        "torchao `Int4WeightOnlyConfig`": config("Int4WeightOnlyConfig", group_size=GROUP),
        "torchao `IntxWeightOnlyConfig`, int4": config("IntxWeightOnlyConfig", **of_group),
        "torchao `to_nf4`": lambda model: sa.quantize_(
            model, lambda weight: quantization.to_nf4(weight, GROUP, 256), LAYERS
        ),
    }


def _of_quanto() -> dict[str, Change]:
    from optimum import quanto  # type: ignore[import-not-found]

    def change(model: nn.Module, weights: Any) -> None:
        kept = [name for name, layer in model.named_modules() if not is_replaced(layer, name)]
        quanto.quantize(model, weights=weights, exclude=kept)
        quanto.freeze(model)

    kinds = {"qint8": quanto.qint8, "qfloat8": quanto.qfloat8, "qint4": quanto.qint4}
    return {f"quanto `{name}`": functools.partial(change, weights=kind) for name, kind in kinds.items()}
