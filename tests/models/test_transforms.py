"""Transforms of `torch.func` around a compiled model of `transformers` with quantized weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.func import grad, vmap

import subclass_aot as sa
from subclass_aot.testing import difference
from tests.models.architectures import make
from tests.models.checks import quantize


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own, of attention under vmap
@pytest.mark.filterwarnings("error:(?s).*was compiled, and is called inside", "error:(?s).*could not be compiled")
def test_gradients_of_embeddings() -> None:
    torch.manual_seed(0)
    model = quantize(make("LlamaForCausalLM").eval())
    compiled = sa.aot_compile(model)
    embeddings = torch.randn(3, 8, model.config.hidden_size)

    def score(function: Any) -> Any:
        return lambda x: function(inputs_embeds=x, use_cache=False).logits.square().sum()

    def each(function: Any) -> Any:
        return vmap(grad(lambda x: score(function)(x[None])))

    for transform in (lambda f: grad(score(f)), lambda f: vmap(lambda x: score(f)(x[None])), each):
        for _ in range(2):
            expected, got = transform(model)(embeddings), transform(compiled)(embeddings)
            assert not difference(expected, got, strides=False, rtol=1e-4, atol=1e-5)
