"""Models of `transformers` in training under bfloat16, with dropout: bit for bit as in eager mode."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from subclass_aot import aot_compile
from tests.models.architectures import ARCHITECTURES, WORDS, make, tokens
from tests.models.checks import loss_of

FEW = ["GPT2LMHeadModel", "BertForSequenceClassification"]
MORE = [
    "GPTJForCausalLM",
    "OPTForCausalLM",
    "Gemma2ForCausalLM",
    "T5ForConditionalGeneration",
    "DebertaV2ForMaskedLM",
    "DeiTForImageClassification",
    "ResNetForImageClassification",
    "SwinForImageClassification",
    "WhisperForConditionalGeneration",
]


def trained(model: Any, inputs: Any, compile_model: Any, batches: tuple[int, ...]) -> list[Tensor]:
    """Steps of AdamW: the losses, and what becomes of parameters and buffers."""
    model = copy.deepcopy(model).train()
    function = model if compile_model is None else compile_model(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for batch in batches:
        torch.manual_seed(batch)
        given = inputs(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(function(**given))
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
    return [*losses, *(x.detach() for x in (*model.parameters(), *model.buffers()))]


def check(model: Any, inputs: Any, compile_model: Any, batches: tuple[int, ...] = (2, 2, 3)) -> None:
    expected, got = (trained(model, inputs, each, batches) for each in (None, compile_model))
    for x, y in zip(expected, got, strict=True):
        torch.testing.assert_close(y, x, rtol=0, atol=0)


@pytest.mark.parametrize("dynamic", [None, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", [*FEW, *(pytest.param(name, marks=pytest.mark.long) for name in MORE)])
def test_training(name: str, dynamic: bool | None) -> None:
    check(make(name), ARCHITECTURES[name].inputs, lambda model: aot_compile(model, dynamic=dynamic))


def behind_dynamo(model: Any, dynamic: bool | None = None) -> Any:
    return torch.compile(model, backend="subclass_aot", dynamic=dynamic)


def test_a_layer_behind_dynamo(fresh_dynamo: None) -> None:
    config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=WORDS, n_positions=8, use_cache=False)

    def inputs(batch: int) -> dict[str, Tensor]:
        return {"input_ids": tokens(batch, 4), "labels": tokens(batch, 4)}

    check(transformers.GPT2LMHeadModel(config), inputs, behind_dynamo, (2, 2))


@pytest.mark.long
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FEW)
def test_training_behind_dynamo(name: str, dynamic: bool | None, fresh_dynamo: None) -> None:
    check(make(name), ARCHITECTURES[name].inputs, lambda model: behind_dynamo(model, dynamic))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_vision_transformer_with_dropout(attention: str) -> None:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8,
        num_labels=3, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, attn_implementation=attention,
    )  # fmt: skip
    check(
        transformers.ViTForImageClassification(config), ARCHITECTURES["ViTForImageClassification"].inputs, aot_compile
    )
