"""Models of `transformers` behind Dynamo, on the backend `"subclass_aot"`: results and gradients as in eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.doors import dynamo
from tests.models.architectures import ARCHITECTURES, make
from tests.models.checks import check_inference, check_training, quantize

FEW = ["LlamaForCausalLM", "GPT2LMHeadModel"]
MORE = [
    "BertForSequenceClassification",
    "T5ForConditionalGeneration",
    "ViTForImageClassification",
    "MixtralForCausalLM",
]

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def behind_dynamo(model: Any) -> Any:
    """The model, and how many graphs were compiled for it, which is no test if there are none."""
    graphs: list[Any] = []

    def noted(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return dynamo.backend(gm, inputs)

    compiled: Any = torch.compile(model, backend=noted)

    def call(**given: Any) -> Any:
        result = compiled(**given)
        assert graphs
        return result

    return call


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", [*FEW, *(pytest.param(name, marks=pytest.mark.long) for name in MORE)])
def test_a_model(name: str, training: bool, quantized: bool) -> None:
    torch.manual_seed(0)
    model = quantize(make(name)) if quantized else make(name)
    (check_training if training else check_inference)(model, ARCHITECTURES[name].inputs, behind_dynamo)
