"""Caches of `transformers` that the user keeps, and configurations that he changes."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache, StaticCache

from subclass_aot import aot_compile
from tests.models.architectures import make, tokens
from tests.models.checks import same


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MistralForCausalLM", "BloomForCausalLM", "GPT2LMHeadModel"])
def test_a_cache_of_the_caller_grows(name: str) -> None:
    """A prompt, then tokens one by one."""
    model = make(name).eval()
    compiled = aot_compile(model)
    ids, found = tokens(2), []
    with torch.no_grad():
        for function in (model, compiled):
            cache = DynamicCache(config=model.config)
            results = [function(input_ids=ids, past_key_values=cache, use_cache=True)]
            for i in range(8):
                step = function(input_ids=ids[:, i % 8 : i % 8 + 1], past_key_values=cache, use_cache=True)
                assert step.past_key_values is cache
                results.append(step)
            found.append((results, cache))
    same(*found[::-1])


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MistralForCausalLM", "Gemma2ForCausalLM"])
def test_few_compilations_serve_a_whole_generation(name: str) -> None:
    """Caches that grow, and those that slide and count what they have seen."""
    model = make(name).eval()
    compiled = aot_compile(model)
    with torch.no_grad():
        for _ in range(2):
            cache = DynamicCache(config=model.config)
            compiled(input_ids=tokens(2), past_key_values=cache)
            for _ in range(12):
                compiled(input_ids=tokens(2, 1), past_key_values=cache)
    assert cache.get_seq_length() == 20
    assert len(compiled.recompiles) <= 4, compiled.recompiles


def test_a_static_cache() -> None:
    model = make("LlamaForCausalLM").eval()
    compiled = aot_compile(model)
    ids, found = tokens(2), []
    with torch.no_grad():
        for function in (model, compiled):
            cache = StaticCache(config=model.config, max_cache_len=16)
            results = [function(input_ids=ids, past_key_values=cache).logits]
            results += [function(input_ids=ids[:, i : i + 1], past_key_values=cache).logits for i in range(4)]
            found.append((results, cache))
    same(*found[::-1])


def test_a_switch_in_the_configuration() -> None:
    model = make("LlamaForCausalLM").eval()
    compiled = aot_compile(model)
    ids = tokens(2)
    with torch.no_grad():
        assert compiled(ids).past_key_values is not None
        model.config.use_cache = False
        assert compiled(ids).past_key_values is None
        assert compiled(ids, output_hidden_states=True).hidden_states is not None


def test_few_compilations_serve_training() -> None:
    """Two batch sizes make two compilations: the second one is for every size."""
    model = make("LlamaForCausalLM").train()
    compiled = aot_compile(model)
    for batch in (2, 3, 4, 5):
        ids = tokens(batch)
        compiled(input_ids=ids, labels=ids).loss.backward()
    assert len(compiled.recompiles) == 1, compiled.recompiles
