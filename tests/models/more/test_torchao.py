"""Weights that `torchao` has quantized: its wrapper classes, in models of `transformers`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerGroup

from tests.models.architectures import ARCHITECTURES, make
from tests.models.checks import check_generation, check_inference, check_training

MODELS = [
    "LlamaForCausalLM",
    "Qwen3ForCausalLM",
    "Gemma2ForCausalLM",
    "OPTForCausalLM",
    "BertForSequenceClassification",
    "ModernBertForMaskedLM",
    "T5ForConditionalGeneration",
    "ViTForImageClassification",
    "SiglipModel",
]

WEIGHTS: dict[str, Any] = {
    "int8": Int8WeightOnlyConfig(),
    "float8": Float8WeightOnlyConfig(),
    "int4": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(16)),
}
ACTIVATIONS: dict[str, Any] = {
    "int8": Int8DynamicActivationInt8WeightConfig(),
    "int4": Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(16)),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
    transformers.logging.set_verbosity(before)


def quantized(name: str, config: Any) -> Any:
    model = make(name).eval()
    quantize_(model, config)
    return model


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("config", WEIGHTS)
def test_training_the_rest(config: str, name: str) -> None:
    """Norms and embeddings learn; the gradients go through the frozen weights."""
    check_training(quantized(name, WEIGHTS[config]), ARCHITECTURES[name].inputs)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("config", WEIGHTS)
def test_inference(config: str, name: str) -> None:
    check_inference(quantized(name, WEIGHTS[config]), ARCHITECTURES[name].inputs)


@pytest.mark.parametrize("name", [name for name in MODELS if ARCHITECTURES[name].generates])
@pytest.mark.parametrize("config", WEIGHTS)
def test_generation(config: str, name: str) -> None:
    check_generation(quantized(name, WEIGHTS[config]), ARCHITECTURES[name].inputs)


@pytest.mark.parametrize("name", ["BertForSequenceClassification", "ViTForImageClassification", "OPTForCausalLM"])
@pytest.mark.parametrize("config", ACTIVATIONS)
def test_activations_are_quantized_too(config: str, name: str) -> None:
    check_inference(quantized(name, ACTIVATIONS[config]), ARCHITECTURES[name].inputs)
