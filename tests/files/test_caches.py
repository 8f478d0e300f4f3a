"""Static caches in few bits against dense ones in which the same formula, written by hand, rounds what is written."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
import torch
import transformers
from transformers import DynamicCache, StaticCache
from transformers.cache_utils import EncoderDecoderCache, StaticLayer, StaticSlidingWindowLayer

import subclass_aot as sa
from subclass_aot.files.transformers import quantize_cache_
from tests.models.test_caches import CACHE

SMALL: Final[dict[str, Any]] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    "eos_token_id": 2, "pad_token_id": 0, "bos_token_id": 1, "num_key_value_heads": 2,
}  # fmt: skip
WINDOW: Final[dict[str, Any]] = {"sliding_window": 6}
OTHERS: Final[dict[str, Any]] = {"eos_token_id": 2, "pad_token_id": 0, "bos_token_id": 1, "vocab_size": 100}
GPT2: Final[dict[str, Any]] = {"n_embd": 64, "n_layer": 2, "n_head": 4, **OTHERS}

MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)),
    "llama in eager attention": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SMALL, attn_implementation="eager")
    ),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SMALL)),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**SMALL, **WINDOW)),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SMALL, **WINDOW, head_dim=16)),
    "gemma3": lambda: transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**SMALL, **WINDOW, head_dim=16)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)),
}
WORDS: Final = torch.arange(3, 19).view(2, 8)
MASK: Final = torch.ones_like(WORDS).index_put_((torch.tensor(0), torch.arange(2)), torch.tensor(0))
LENGTH: Final = 24


def by_hand(states: torch.Tensor) -> torch.Tensor:
    """Each row in steps of a 127th of its largest value."""
    largest = states.abs().amax(-1, keepdim=True)
    step = largest.clamp(min=torch.finfo(states.dtype).tiny * 127) / 127
    return (states / step).round().clamp(-127, 127) * step


class ByHand(StaticLayer):
    """Rounds what it writes."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Any:
        return super().update(by_hand(key_states), by_hand(value_states), *args, **kwargs)


class ByHandInWindow(ByHand, StaticSlidingWindowLayer):
    """Rounds what it writes."""


def rounded_by_hand(cache: Any) -> Any:
    for layer in cache.layers:
        layer.__class__ = {StaticLayer: ByHand, StaticSlidingWindowLayer: ByHandInWindow}[type(layer)]
    return cache


def make(name: str = "llama", dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    return MODELS[name]().to(dtype).eval()


def static(model: Any) -> Any:
    return StaticCache(model.config, max_cache_len=LENGTH)


def generated(model: Any, cache: Any, **options: Any) -> Any:
    """Ten words more, with the logits of each."""
    return model.generate(
        WORDS, attention_mask=MASK, max_new_tokens=10, min_new_tokens=10, do_sample=False, output_logits=True,
        return_dict_in_generate=True, **{CACHE: cache}, **options,
    )  # fmt: skip


def same(found: Any, expected: Any) -> None:
    assert torch.equal(found.sequences, expected.sequences)
    assert all(torch.equal(x, y) for x, y in zip(found.logits, expected.logits, strict=True))


def bytes_of(cache: Any) -> int:
    tensors = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    return sum(
        sum(getattr(x, name).nbytes for name in x.__tensor_flatten__()[0]) if isinstance(x, sa.Int8Weight) else x.nbytes
        for x in tensors
    )


@pytest.mark.parametrize("run", [lambda model: model, partial(sa.aot_compile, fw_compiler="eager")], ids=["eager", ""])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_words_and_logits_are_those_of_a_cache_rounded_by_hand(
    name: str, dtype: torch.dtype, beams: int, run: Callable[[Any], Any]
) -> None:
    model = make(name, dtype)
    cache = quantize_cache_(static(model))
    found = generated(run(model), cache, num_beams=beams)
    same(found, generated(run(model), rounded_by_hand(static(model)), num_beams=beams))
    assert {type(x) for layer in cache.layers for x in (layer.keys, layer.values)} == {sa.Int8Weight}
    dense = generated(model, static(model), num_beams=beams)
    assert not all(torch.equal(x, y) for x, y in zip(found.logits, dense.logits, strict=True))


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_in_parts_of_any_length(name: str) -> None:
    """As a conversation has them: also what is longer than the window, and what comes when that is full."""
    model = make(name)
    found, expected = quantize_cache_(static(model)), rounded_by_hand(static(model))
    compiled, compiled_for_hand = sa.aot_compile(model, fw_compiler="eager"), sa.aot_compile(model, fw_compiler="eager")
    in_graphs, expected_there = quantize_cache_(static(model)), rounded_by_hand(static(model))
    with torch.no_grad():
        for length in (2, 3, 8, 1, 4, 1):
            for one, cache, other, by in (
                (model, found, model, expected),
                (compiled, in_graphs, compiled_for_hand, expected_there),
            ):
                words = WORDS[:, :length]
                logits = one(words, **{CACHE: cache}).logits
                assert torch.equal(logits, other(words, **{CACHE: by}).logits)
        for layer, other_layer in zip(found.layers, expected.layers, strict=True):
            assert torch.equal(layer.keys.to_plain(), other_layer.keys)
            assert torch.equal(layer.values.to_plain(), other_layer.values)


def test_compiled_writes_go_where_the_cache_is() -> None:
    model = make()
    compiled, cache = sa.aot_compile(model, fw_compiler="eager"), quantize_cache_(static(model))
    with torch.no_grad():
        compiled(WORDS, **{CACHE: cache})
        keys = cache.layers[0].keys
        memory, first = keys.codes.data_ptr(), keys[:, :, :8].clone()
        for step in range(4):
            compiled(WORDS[:, :1], **{CACHE: cache})
            assert keys.codes[:, :, 8 + step].any() and not keys.codes[:, :, 9 + step :].any()
    assert cache.layers[0].keys is keys and keys.codes.data_ptr() == memory and len(compiled.recompiles) == 1
    assert torch.equal(keys[:, :, :8].codes, first.codes) and torch.equal(keys[:, :, :8].scale, first.scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bytes(dtype: torch.dtype) -> None:
    """Of rows of 16: the codes, and one number more."""
    model = make("llama", dtype)
    dense, found = static(model), quantize_cache_(static(model))
    for cache in (dense, found):
        model(WORDS, **{CACHE: cache})
    assert bytes_of(found) * 16 * dtype.itemsize == bytes_of(dense) * (16 + dtype.itemsize)


def test_the_cost_is_known_without_data() -> None:
    config = transformers.LlamaConfig(**SMALL, max_position_embeddings=8192)
    model = transformers.LlamaForCausalLM(config).eval()

    def run(words: torch.Tensor, change: Callable[[Any], Any]) -> None:
        cache = change(StaticCache(config, max_cache_len=8192))
        with torch.no_grad():
            for part in (words, words[:, :1]):
                model(part, **{CACHE: cache})

    dense, found = (sa.profile(run, WORDS, change).peak for change in (lambda cache: cache, quantize_cache_))
    layer = 2 * 2 * 8192 * 2 * 16 * 4  # keys and values in float32
    kept = 2 * layer * (16 + 4) // 64  # of two layers in eight bits
    assert found < kept + 1.2 * layer < 2 * layer < dense


@pytest.mark.parametrize(
    "to",
    [
        sa.tensors.Float8Weight,
        sa.tensors.Int8DynamicWeight,
        partial(sa.tensors.Int4Weight.from_float, group=16),
        partial(sa.tensors.NF4Weight.from_float, block=16),
    ],
)
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_other_classes(name: str, to: Any) -> None:
    model = make(name)
    found = [
        generated(run, quantize_cache_(static(model), to))
        for run in (model, sa.aot_compile(model, fw_compiler="eager"))
    ]
    torch.testing.assert_close(found[0].logits, found[1].logits)
    exact = generated(model, static(model)).logits[1]
    off = (found[0].logits[1] - exact).norm() / exact.norm()
    assert 0 < off < 0.1


def test_cropped_reset_copied_and_made_early() -> None:
    model = make()
    with torch.no_grad():
        cache = quantize_cache_(static(model))
        expected = model(WORDS, **{CACHE: cache}).logits
        for again in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
            again.crop(-3)
            torch.testing.assert_close(model(WORDS[:, 5:], **{CACHE: again}).logits, expected[:, 5:])
        cache.reset()
        assert type(cache.layers[0].keys) is sa.Int8Weight and not cache.layers[0].keys.to_plain().any()
        assert torch.equal(model(WORDS, **{CACHE: cache}).logits, expected)
        early = quantize_cache_(static(model))
        early.early_initialization(2, 2, 16, torch.float32, torch.device("cpu"))
        assert early.layers[0].keys.shape == (2, 2, LENGTH, 16)
        assert torch.equal(model(WORDS, **{CACHE: early}).logits, expected)


def test_what_a_cache_holds_is_rounded() -> None:
    model, cache = make(), static(make())
    with torch.no_grad():
        model(WORDS, **{CACHE: cache})
    held = cache.layers[0].keys.clone()
    assert torch.equal(quantize_cache_(cache).layers[0].keys.to_plain(), by_hand(held))


def test_an_encoder_and_a_decoder() -> None:
    config = transformers.T5Config(
        d_model=64, d_ff=128, num_layers=1, num_heads=2, d_kv=32, vocab_size=100, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config).eval()

    def both() -> Any:
        return EncoderDecoderCache(static(model), StaticCache(config, max_cache_len=8))

    expected = both()
    rounded_by_hand(expected.self_attention_cache)
    rounded_by_hand(expected.cross_attention_cache)
    same(generated(model, quantize_cache_(both())), generated(model, expected))


def once(states: torch.Tensor) -> torch.Tensor:
    """One scale for all."""
    return sa.Int8Weight(states.to(torch.int8), torch.ones(1, 1, 1, 1))


def test_refusals() -> None:
    model = make()
    caches: dict[str, Any] = {
        "layer 0 of this DynamicCache is a DynamicLayer": DynamicCache(config=model.config),
        "this DynamicCache has no layers with keys": DynamicCache(),
        "this str has no layers with keys": "static",
        "layer 0 of this StaticCache is a QuantizedLayer": quantize_cache_(static(model)),
    }
    for match, cache in caches.items():
        with pytest.raises(ValueError, match=match):
            quantize_cache_(cache)
    with pytest.raises(ValueError, match="the Int8Weight that was made is rounded as a whole, and not row by row"):
        model(WORDS, **{CACHE: quantize_cache_(static(model), once)})
    with pytest.raises(ValueError, match="groups of 64"):
        model(WORDS, **{CACHE: quantize_cache_(static(model), sa.tensors.Int4Weight)})


QUANTIZED: dict[str, Any] = {
    "Int8Weight": sa.Int8Weight,
    "Int4Weight": partial(sa.tensors.Int4Weight.from_float, group=32),
    "NF4Weight": partial(sa.tensors.NF4Weight.from_float, block=32),
}


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("to", QUANTIZED)
@pytest.mark.parametrize("name", MODELS)
def test_beside_quantized_embeddings(name: str, to: str, is_tied: bool) -> None:
    """The words of a model whose weights are dense and have the values of the quantized ones."""
    model = make(name)
    if is_tied:
        model.set_output_embeddings(model.get_output_embeddings())
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
    else:
        weight = model.get_output_embeddings().weight
        model.get_output_embeddings().weight = torch.nn.Parameter(weight.detach().clone())
    sa.quantize_(model, QUANTIZED[to], lambda name, layer: isinstance(layer, torch.nn.Embedding | torch.nn.Linear))
    dense = make(name)
    dense.get_output_embeddings().weight = torch.nn.Parameter(dense.get_output_embeddings().weight.detach().clone())
    dense.load_state_dict(sa.files.dense_state_dict(model))
    expected = generated(dense, rounded_by_hand(static(model)))
    for run in (model, sa.aot_compile(model, fw_compiler="eager")):
        found = generated(run, quantize_cache_(static(model)))
        torch.testing.assert_close(found.logits[0], expected.logits[0], rtol=1e-4, atol=1e-4)
    assert type(model.get_input_embeddings().weight).__name__ == to
