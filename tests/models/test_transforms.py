"""Transforms of `torch.func` around a compiled model of `transformers` with quantized weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import functional_call, grad, jacrev, vjp, vmap

import subclass_aot as sa
from subclass_aot.testing import difference
from tests.models.architectures import make
from tests.models.checks import quantize


class Holds(torch.nn.Module):
    """Calls a function of a model whose parameters `functional_call` may replace."""

    def __init__(self, model: torch.nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self._function = model, (function,)  # a second name for the model would be one more place

    def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self._function[0](inputs_embeds=embeddings, use_cache=False).logits
        return result


def check_transforms(model: Any) -> None:
    """Gradients of embeddings and of dense parameters, of one sentence, each of many, and in every direction."""
    torch.manual_seed(0)
    model.requires_grad_(False)
    compiled = sa.aot_compile(model)
    embeddings = torch.randn(3, 8, model.config.hidden_size)
    directions = torch.randn(2, 1, 8, model.config.vocab_size)
    norms = {f"inner.{name}": p.detach() for name, p in model.named_parameters() if name.endswith("norm.weight")}
    assert norms

    def score(holds: Any) -> Any:
        return lambda x: holds(x).square().sum()

    def of_norms(holds: Any) -> Any:
        return lambda norms, x: functional_call(holds, norms, (x[None],)).square().sum()

    transforms: dict[str, Callable[[Any], Any]] = {
        "grad": lambda f: grad(score(f))(embeddings),
        "vmap": lambda f: vmap(lambda x: score(f)(x[None]))(embeddings),
        "each": lambda f: vmap(grad(lambda x: score(f)(x[None])))(embeddings),
        "of norms": lambda f: grad(of_norms(f))(norms, embeddings[0]),
        "of norms, each": lambda f: vmap(grad(of_norms(f)), (None, 0))(norms, embeddings),
        "directions": lambda f: vmap(vjp(f, embeddings[:1])[1])(directions),
        "in parts": lambda f: jacrev(lambda x: f(x)[0, -1, :3], chunk_size=2)(embeddings[:1]),
    }
    for name, transform in transforms.items():
        expected = transform(Holds(model, model))
        for _ in range(2):
            got = transform(Holds(model, compiled))
            pairs = zip(*map(torch.utils._pytree.tree_leaves, (expected, got)), strict=True)
            assert not [(name, d) for a, b in pairs if (d := difference(a, b, strides=False, rtol=1e-4, atol=1e-5))]


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own, of attention under vmap
@pytest.mark.filterwarnings("ignore:(?s).*was compiled, and is called inside")
def test_quantized_weights() -> None:
    check_transforms(quantize(make("LlamaForCausalLM").eval()))
