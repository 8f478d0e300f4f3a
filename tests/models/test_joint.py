"""Joint graphs of models of `transformers`: names, gradients of named parameters, and training as in eager mode."""

from __future__ import annotations

import pytest

from tests.models.architectures import ARCHITECTURES, make
from tests.models.checks import check_joint, quantize

MODELS = ["LlamaForCausalLM", "GPT2LMHeadModel", "BertForSequenceClassification", "ViTForImageClassification"]


@pytest.mark.parametrize("name", MODELS)
def test_int8_weights(name: str) -> None:
    check_joint(quantize(make(name)), ARCHITECTURES[name].inputs)
