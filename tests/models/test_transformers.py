"""Models of `transformers`, from their configurations: results, gradients and caches as in eager mode.

`make test` tries a few architectures, most of them in few ways; `make test-all` (`pytest --all`) all.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from subclass_aot import SubclassAotError
from tests.models.architectures import ARCHITECTURES, Inputs, causal, make, segmented
from tests.models.checks import (
    check_beams,
    check_generation,
    check_inference,
    check_sampling,
    check_training,
    check_without_data,
    quantize,
)

Check = Callable[[Any, Inputs], None]


def without_data(model: Any, inputs: Inputs, compiled: bool = False) -> None:
    """Decoders with padding, which other models look at where they are not traced."""
    device = "cpu" if inputs is segmented else "meta"  # a convolution there has another memory format on "meta"
    if compiled:
        return check_without_data(model, inputs, compiled=True, device=device)
    model.set_attn_implementation("eager")
    unpadded = {"attention_mask"} if inputs is not causal else set()
    check_without_data(model, lambda n: {k: v for k, v in inputs(n).items() if k not in unpadded}, device=device)


OF_ALL: dict[str, Check] = {
    "training": check_training,
    "inference": check_inference,
    "int8 training": lambda model, inputs: check_training(quantize(model), inputs),
    "int8 inference": lambda model, inputs: check_inference(quantize(model), inputs),
    "without data": without_data,
    "compiled without data": lambda model, inputs: without_data(model, inputs, compiled=True),
}
OF_GENERATORS: dict[str, Check] = {
    "generation": check_generation,
    "sampling": check_sampling,
    "beams": check_beams,
    "int8 generation": lambda model, inputs: check_generation(quantize(model), inputs),
}
CHECKS = {**OF_ALL, **OF_GENERATORS}

FEW = {
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "GPT2LMHeadModel",
    "MixtralForCausalLM",
    "MambaForCausalLM",
    "BertForSequenceClassification",
    "DebertaV2ForMaskedLM",
    "LongformerForMaskedLM",
    "T5ForConditionalGeneration",
    "ViTForImageClassification",
    "ConvNextForImageClassification",
    "CLIPModel",
    "Wav2Vec2ForSequenceClassification",
}
"""What `make test` has time for: one or two of each kind, and what reads values."""

LEFT_OUT = {
    ("beams", "RwkvForCausalLM"): "transformers refuses it: its cache cannot be reordered",
    ("without data", "Wav2Vec2ForSequenceClassification"): "drops layers at random, others at each run",
}

REFUSED: dict[tuple[str, str], str] = {
    ("compiled without data", "LongformerForMaskedLM"): "is_index_global_attn.flatten().any().item()",
    ("compiled without data", "Wav2Vec2ForSequenceClassification"): "if not skip_the_layer or synced_gpus:",
}
"""Part of the message, by check and architecture. One that passes fails the test, so that this table shrinks."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All checks of the architectures that were asked for."""
    names = [name for name in ARCHITECTURES if metafunc.config.getoption("--all") or name in FEW]
    cases = [
        (check, name)
        for name in names
        for check in (CHECKS if ARCHITECTURES[name].generates else OF_ALL)
        if (check, name) not in LEFT_OUT
    ]
    long = [pytest.mark.long]
    params = [pytest.param(*case, marks=long if is_long(*case) else []) for case in cases]
    metafunc.parametrize(("check", "name"), params)


def is_long(check: str, name: str) -> bool:
    """Whether `make test` leaves it out; it tries one architecture in all ways, and generation with two."""
    if check == "int8 generation":
        return name not in ("LlamaForCausalLM", "T5ForConditionalGeneration")
    return name != "LlamaForCausalLM" and check != "int8 training"


def test_it_is_as_in_eager_mode(check: str, name: str) -> None:
    message = REFUSED.get((check, name))
    with pytest.raises(SubclassAotError, match=re.escape(message)) if message else contextlib.nullcontext():
        CHECKS[check](make(name), ARCHITECTURES[name].inputs)
