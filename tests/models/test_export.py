"""Models of `transformers` with quantized weights as exported programs of dense tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.testing import difference
from tests.models.architectures import ARCHITECTURES, make
from tests.models.checks import quantize

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def without_labels(name: str, batch: int) -> dict[str, Any]:
    inputs = ARCHITECTURES[name].inputs(batch)
    inputs.pop("labels", None)
    return inputs if name.startswith("ViT") else {**inputs, "use_cache": False}


def check_export(model: Any, name: str) -> None:
    inputs = without_labels(name, 2)
    exported = sa.export_forward(sa.aot_compile(model), (), inputs)
    assert all(type(tensor) is torch.Tensor for tensor in exported.state_dict.values())
    assert any(name.count(".weight.") for name in exported.state_dict)
    program = exported.module()
    for given in (inputs, without_labels(name, 2)):
        with torch.no_grad():
            expected, got = model(**given), program(**given)
        assert type(expected) is type(got) and [*expected] == [*got]
        assert not any(difference(expected[key], got[key]) for key in expected)


@pytest.mark.parametrize(
    "name",
    [
        "LlamaForCausalLM",
        "ViTForImageClassification",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("Qwen3ForCausalLM", "GPT2LMHeadModel")),
    ],
)
def test_a_model(name: str) -> None:
    torch.manual_seed(0)
    check_export(quantize(make(name).eval()), name)
