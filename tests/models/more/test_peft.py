"""Adapters of `peft` on a Llama, dense and with integer weights: only the adapters learn."""

from __future__ import annotations

from typing import Any

import peft
import pytest

from tests.models.architectures import ARCHITECTURES, make
from tests.models.checks import check_generation, check_inference, check_training, check_without_data, quantize

LLAMA = "LlamaForCausalLM"
INPUTS = ARCHITECTURES[LLAMA].inputs
LAYERS: dict[str, Any] = {"target_modules": ["q_proj", "v_proj", "up_proj"]}
PROMPT: dict[str, Any] = {"task_type": "CAUSAL_LM", "num_virtual_tokens": 3}

CONFIGS: dict[str, Any] = {
    "LoRA": lambda: peft.LoraConfig(r=4, lora_dropout=0.1, init_lora_weights=False, **LAYERS),
    "DoRA": lambda: peft.LoraConfig(r=4, use_dora=True, **LAYERS),
    "IA3": lambda: peft.IA3Config(feedforward_modules=["up_proj"], **LAYERS),
    "LoHa": lambda: peft.LoHaConfig(r=4, **LAYERS),
    "LoKr": lambda: peft.LoKrConfig(r=4, **LAYERS),
    "OFT": lambda: peft.OFTConfig(oft_block_size=4, **LAYERS),
    "BOFT": lambda: peft.BOFTConfig(boft_block_size=4, **LAYERS),
    "VeRA": lambda: peft.VeraConfig(r=4, target_modules=["q_proj"]),
    "AdaLoRA": lambda: peft.AdaLoraConfig(r=4, init_r=6, total_step=10, **LAYERS),
    "prompt tuning": lambda: peft.PromptTuningConfig(**PROMPT),
    "prefix tuning": lambda: peft.PrefixTuningConfig(**PROMPT),
}


def adapted(name: str, model: Any = None) -> Any:
    return peft.get_peft_model(make(LLAMA) if model is None else model, CONFIGS[name]())


@pytest.mark.parametrize("name", CONFIGS)
def test_training(name: str) -> None:
    check_training(adapted(name), INPUTS)


@pytest.mark.parametrize("name", CONFIGS)
def test_inference(name: str) -> None:
    check_inference(adapted(name), INPUTS)


def test_lora_on_integer_weights() -> None:
    check_training(adapted("LoRA", quantize(make(LLAMA))), INPUTS)
    check_inference(adapted("LoRA", quantize(make(LLAMA))), INPUTS)


def test_generation_with_lora() -> None:
    model = adapted("LoRA").base_model.model
    check_generation(model, INPUTS)


def test_lora_merged() -> None:
    check_generation(adapted("LoRA").merge_and_unload(), INPUTS)


@pytest.mark.parametrize("name", ["LoRA", "IA3", "OFT", "BOFT", "VeRA"])
def test_without_data(name: str) -> None:
    check_without_data(adapted(name), INPUTS, compiled=True)
