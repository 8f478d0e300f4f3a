"""Weights that `torchao` has quantized: its wrapper classes, in models of `transformers`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from torch.nn import functional as F
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerGroup
from torchao.quantization.quantize_.workflows.nf4.nf4_tensor import to_nf4

import subclass_aot as sa
from subclass_aot import aot_compile
from tests.models.architectures import ARCHITECTURES, make
from tests.models.checks import check_generation, check_inference, check_joint, check_training
from tests.models.test_export import check_export
from tests.models.test_transforms import check_transforms

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


@pytest.mark.parametrize("compiler", ["eager", "inductor"])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_four_bits_whose_product_is_a_function_of_autograd(requires_grad: bool, compiler: str) -> None:
    """`nn.Parameter` has weights require a gradient, and this product gives them none."""
    weight = torch.nn.Parameter(to_nf4(torch.randn(64, 64), 32, 2), requires_grad=requires_grad)
    found = []
    for function in (F.linear, aot_compile(F.linear, fw_compiler=compiler)):
        x = torch.ones(3, 64, requires_grad=True)
        out = function(x, weight)
        out.sin().sum().backward()
        found.append((out.detach(), x.grad))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)
    assert weight.grad is None


@pytest.mark.parametrize("name", ["BertForSequenceClassification", "ViTForImageClassification", "OPTForCausalLM"])
@pytest.mark.parametrize("config", ACTIVATIONS)
def test_activations_are_quantized_too(config: str, name: str) -> None:
    check_inference(quantized(name, ACTIVATIONS[config]), ARCHITECTURES[name].inputs)


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "ViTForImageClassification"])
def test_behind_dynamo(name: str) -> None:
    for check in (check_inference, check_training):
        torch.compiler.reset()
        model = make(name)
        quantize_(model, WEIGHTS["int8"])
        check(model, ARCHITECTURES[name].inputs, lambda model: torch.compile(model, backend="subclass_aot"))


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "BertForSequenceClassification", "ViTForImageClassification"])
@pytest.mark.parametrize("config", WEIGHTS)
def test_joint_graphs(config: str, name: str) -> None:
    check_joint(quantized(name, WEIGHTS[config]), ARCHITECTURES[name].inputs)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_export(weights: str) -> None:
    torch.manual_seed(0)
    model = make("LlamaForCausalLM").eval()
    quantize_(model, WEIGHTS[weights])
    check_export(model, "LlamaForCausalLM")


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own, of attention under vmap
@pytest.mark.filterwarnings("ignore:(?s).*was compiled, and is called inside")
@pytest.mark.parametrize("weights", WEIGHTS)
def test_transforms(weights: str) -> None:
    check_transforms(quantized("LlamaForCausalLM", WEIGHTS[weights]))


def test_what_a_model_costs() -> None:
    """The peak is that of a real run, and the bytes that weights hold are those of what is within."""
    for config, itemsize in ((WEIGHTS["int8"], 1), (WEIGHTS["float8"], 1), (ACTIVATIONS["int8"], 1)):
        model: Any = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
        quantize_(model, config)
        x = torch.randn(64, 256)
        report = sa.profile(lambda model, x: model(x).sum().backward(), model, x.requires_grad_())
        held = {each.name: each.held for each in report.wrappers}
        assert held["0.weight"] == pytest.approx(256 * 512 * itemsize, rel=0.05)
        assert report.flops("forward") == 2 * 2 * 64 * 256 * 512
        assert report.check().peak == pytest.approx(report.peak, rel=0.001)
