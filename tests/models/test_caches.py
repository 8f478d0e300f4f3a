"""Caches of `transformers` that the user keeps, and configurations that he changes."""

from __future__ import annotations

import dataclasses
from typing import Final

import pytest
import torch
from transformers import DynamicCache, StaticCache
from transformers.modeling_outputs import CausalLMOutputWithPast

from subclass_aot import aot_compile
from tests.models.architectures import make, tokens
from tests.models.checks import same

FIELDS: Final = {field.name for field in dataclasses.fields(CausalLMOutputWithPast)}
CACHE: Final = "cache" if "cache" in FIELDS else "past_key_values"
"""What a cache is called, as an argument and in results: transformers 5.24 renamed it, and warns of the old name."""


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MistralForCausalLM", "BloomForCausalLM", "GPT2LMHeadModel"])
def test_a_cache_of_the_caller_grows(name: str) -> None:
    """A prompt, then tokens one by one."""
    model = make(name).eval()
    compiled = aot_compile(model)
    ids, found = tokens(2), []
    with torch.no_grad():
        for function in (model, compiled):
            cache = DynamicCache(config=model.config)
            results = [function(input_ids=ids, **{CACHE: cache}, use_cache=True)]
            for i in range(8):
                step = function(input_ids=ids[:, i % 8 : i % 8 + 1], **{CACHE: cache}, use_cache=True)
                assert getattr(step, CACHE) is cache
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
            compiled(input_ids=tokens(2), **{CACHE: cache})
            for _ in range(12):
                compiled(input_ids=tokens(2, 1), **{CACHE: cache})
    assert cache.get_seq_length() == 20
    assert len(compiled.recompiles) <= 4, compiled.recompiles


def test_a_static_cache() -> None:
    model = make("LlamaForCausalLM").eval()
    compiled = aot_compile(model)
    ids, found = tokens(2), []
    with torch.no_grad():
        for function in (model, compiled):
            cache = StaticCache(config=model.config, max_cache_len=16)
            results = [function(input_ids=ids, **{CACHE: cache}).logits]
            results += [function(input_ids=ids[:, i : i + 1], **{CACHE: cache}).logits for i in range(4)]
            found.append((results, cache))
    same(*found[::-1])


def test_a_switch_in_the_configuration() -> None:
    model = make("LlamaForCausalLM").eval()
    compiled = aot_compile(model)
    ids = tokens(2)
    with torch.no_grad():
        assert getattr(compiled(ids), CACHE) is not None
        model.config.use_cache = False
        assert getattr(compiled(ids), CACHE) is None
        assert compiled(ids, output_hidden_states=True).hidden_states is not None


def test_few_compilations_serve_training() -> None:
    """Two batch sizes make two compilations: the second one is for every size."""
    model = make("LlamaForCausalLM").train()
    compiled = aot_compile(model)
    for batch in (2, 3, 4, 5):
        ids = tokens(batch)
        compiled(input_ids=ids, labels=ids).loss.backward()
    assert len(compiled.recompiles) == 1, compiled.recompiles
