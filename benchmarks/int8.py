"""Small models with int8 weights, whose time goes into kernels: beside dense ones, and beside `torch.compile`.

Everything but the weights of linear layers stays as it is; in training the other parameters learn.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import transformers
from torch import nn

import subclass_aot as sa
from benchmarks.models import infer, step
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Side, compare

EAGER = Target.within(1.3, "eager int8, against eager dense")
COMPILED = Target.faster(1, "inductor, against torch.compile")

DENSE, INT8, HAND = "eager, dense weights", "eager, int8 weights", "eager, codes and scales by hand"
OURS = 'aot_compile, "eager"'
OURS_INDUCTOR, TORCHS = 'aot_compile, "inductor"', "torch.compile"


def vit() -> tuple[nn.Module, dict[str, Any]]:
    """Four layers of width 64, one image of 16 patches."""
    config = transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=256, image_size=32, patch_size=8,
        num_labels=10,
    )  # fmt: skip
    given = {"pixel_values": torch.randn(1, 3, 32, 32), "labels": torch.tensor([3])}
    return transformers.ViTForImageClassification(config), given


def llama(words: int) -> tuple[nn.Module, dict[str, Any]]:
    """Four layers of width 128."""
    config = transformers.LlamaConfig(
        hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, intermediate_size=512,
        vocab_size=256, use_cache=False,
    )  # fmt: skip
    ids = torch.randint(0, 256, (1, words))
    return transformers.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}


MODELS: dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
    "ViT": vit,
    "Llama, 2 words": lambda: llama(2),
    "Llama, 64 words": lambda: llama(64),
}


class ByHand(nn.Module):
    """A linear layer that computes what `Int8Weight` does, without any wrapper."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight: Any = layer.weight
        self.codes, self.scale = nn.Buffer(weight.codes), nn.Buffer(weight.scale)
        self.bias = layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Computes the layer."""
        product = (x @ self.codes.to(x.dtype).t()) * self.scale.t()
        return product if self.bias is None else product + self.bias


def by_hand(quantized: nn.Module) -> nn.Module:
    """A copy of a model of which each layer with an `Int8Weight` has its codes and scales instead."""
    made = copy.deepcopy(quantized)
    layers = [(name, layer) for name, layer in made.named_modules() if isinstance(layer, nn.Linear)]
    for name, layer in layers:
        if isinstance(layer.weight.data, sa.Int8Weight):
            made.set_submodule(name, ByHand(layer))
    return made


def _is_inner(name: str, layer: nn.Module) -> bool:
    """Whether a layer is linear, and not the one that scores words."""
    return isinstance(layer, nn.Linear) and not name.endswith("lm_head")


def run(budget: Budget, names: Iterable[str] = tuple(MODELS), with_inductor: bool = True) -> Iterator[Result]:
    """Measures each model in inference and in training."""
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    for name in names:
        model, given = MODELS[name]()
        yield from measure(name, model, given, budget, with_inductor)


def measure(
    name: str, model: nn.Module, given: dict[str, Any], budget: Budget, with_inductor: bool = True
) -> Iterator[Result]:
    """The rows of one model; each side has a copy of its own."""
    quantized = sa.quantize_(copy.deepcopy(model), sa.Int8Weight, _is_inner)
    for training in False, True:
        torch.compiler.reset()
        models = {DENSE: copy.deepcopy(model), HAND: by_hand(quantized)}
        models |= {side: copy.deepcopy(quantized) for side in (INT8, OURS)}
        functions: dict[str, Any] = {**models, OURS: sa.aot_compile(models[OURS])}
        if with_inductor:
            models |= {side: copy.deepcopy(quantized) for side in (OURS_INDUCTOR, TORCHS)}
            functions[OURS_INDUCTOR] = sa.aot_compile(models[OURS_INDUCTOR], fw_compiler="inductor")
            functions[TORCHS] = torch.compile(models[TORCHS])
        for each in models.values():
            each.train(training)
        sides = {
            side: Side(step, (function, given, models[side])) if training else Side(infer, (function, given))
            for side, function in functions.items()
        }
        subject = "int8 training step" if training else "int8 inference"
        comparison = compare(sides, budget)
        yield Result(subject, name, comparison, INT8, {DENSE: EAGER, HAND: None})
        yield Result(subject, name, comparison, HAND, {DENSE: None})
        yield Result(subject, name, comparison, OURS, {INT8: None, DENSE: None})
        if with_inductor:
            yield Result(subject, name, comparison, OURS_INDUCTOR, {TORCHS: COMPILED, DENSE: None})
