"""What models of transformers cost, without data: at any batch, with checkpoints, and by `generate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

import subclass_aot as sa

transformers.logging.set_verbosity_error()

SMALL: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 100,
    "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1,
}  # fmt: skip
HEADS: dict[str, Any] = {"num_key_value_heads": 2, "use_cache": False}


def llama(**options: Any) -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **options))


def checkpointed() -> Any:
    model = llama(use_cache=False)
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
    return model.train()


MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: llama(use_cache=False),
    "llama with a cache": llama,
    "checkpointed": checkpointed,
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SMALL, **HEADS)),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**SMALL, **HEADS)),
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**SMALL, max_position_embeddings=1024)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=100, use_cache=False)
    ),
    "olmoe": lambda: transformers.OlmoeForCausalLM(
        transformers.OlmoeConfig(**SMALL, num_experts=4, num_experts_per_tok=2, use_cache=False)
    ),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_refused_for_its_size(name: str) -> None:
    model = MODELS[name]()
    ran = []
    for batch in (1 << 5, 1 << 7, 1 << 11):
        words = torch.zeros(batch, 1024, dtype=torch.int64)
        report = sa.profile(model, input_ids=words, labels=words)
        assert report.assumed == []
        ran.append([work.operator for work in report.timeline.work])
    assert ran[0] == ran[1] == ran[2]


GENERATED: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"do_sample": True, "top_k": 10, "top_p": 0.9},
    "a static cache": {"cache_implementation": "static"},
    "beams": {"num_beams": 2},
    "beams that stop early": {"num_beams": 3, "early_stopping": True},
    "several": {"do_sample": True, "num_return_sequences": 2},
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", GENERATED)
def test_generate_ends_at_its_longest_length(name: str) -> None:
    """Nobody knows which token is an end token; what runs costs what it costs where none comes."""
    model, words = llama(num_key_value_heads=1).eval(), torch.randint(3, 100, (2, 6))
    model.generation_config.eos_token_id = 2
    steps: list[int] = []
    model.register_forward_hook(lambda *_: steps.append(1))

    def program(model: Any, words: torch.Tensor) -> Any:
        return model.generate(words, max_new_tokens=4, **GENERATED[name])

    report = sa.profile(program, model, words, assume=True)
    assert len(steps) == 4 and report.assumed
    model.generation_config.eos_token_id = None
    expected = sa.profile(program, model, words, assume=True)
    assert report.peak == pytest.approx(expected.peak, rel=0.02)
