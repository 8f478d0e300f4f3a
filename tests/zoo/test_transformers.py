"""Models of `transformers`, from their configurations: results, caches, losses and gradients as in eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers
from transformers import DynamicCache, StaticCache

from subclass_aot import Int8Weight, MetaTensor, aot_compile, meta

SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
GROUPED: dict[str, Any] = {**SMALL, "intermediate_size": 64, "num_key_value_heads": 2}
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
IMAGES = {"image_size": 16, "patch_size": 8}

# By the name of a class: the options of its configuration.
GENERATORS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": GROUPED,
    "MistralForCausalLM": {**GROUPED, "sliding_window": 4},
    "Qwen2ForCausalLM": GROUPED,
    "MixtralForCausalLM": {**GROUPED, "num_local_experts": 4},
    "Gemma2ForCausalLM": {**GROUPED, "head_dim": 8},
    "GPT2LMHeadModel": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64, "n_positions": 64},
    "OPTForCausalLM": {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
    "PhiForCausalLM": {**SMALL, "intermediate_size": 64},
    "GPTNeoXForCausalLM": {**SMALL, "intermediate_size": 64},
    "BloomForCausalLM": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64},
}
OTHERS: dict[str, dict[str, Any]] = {
    "BertForSequenceClassification": {**SMALL, "intermediate_size": 64, "num_labels": 3},
    "RobertaForSequenceClassification": {**SMALL, "intermediate_size": 64, "num_labels": 3},
    "DistilBertForSequenceClassification": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 64},
    "T5ForConditionalGeneration": {
        "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 64,
        "decoder_start_token_id": 0,
    },
    "BartForConditionalGeneration": {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 64,
    },
    "ViTForImageClassification": {**VISION, **IMAGES, "num_labels": 3},
    "CLIPModel": {
        "text_config": {**SMALL, "intermediate_size": 64, "eos_token_id": 3},
        "vision_config": {**VISION, **IMAGES},
        "projection_dim": 16,
    },
}  # fmt: skip


def ids(length: int = 8) -> torch.Tensor:
    return torch.randint(5, 64, (2, length))


def inputs_of(name: str) -> dict[str, Any]:
    if name in GENERATORS:
        x = ids()
        return {"input_ids": x, "labels": x}
    if name.endswith("SequenceClassification"):
        return {"input_ids": ids(), "labels": torch.tensor([0, 1])}
    if name.endswith("ConditionalGeneration"):
        return {"input_ids": ids(), "labels": ids(6)}
    images = {"pixel_values": torch.randn(2, 3, 16, 16)}
    if name.startswith("ViT"):
        return {**images, "labels": torch.tensor([0, 2])}
    return {**images, "input_ids": ids(), "return_loss": True}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    yield
    transformers.logging.set_verbosity(before)


def make(name: str) -> Any:
    cls = getattr(transformers, name)
    return cls(cls.config_class(**{**GENERATORS, **OTHERS}[name]))


def same(got: Any, expected: Any, path: str = "") -> None:
    """Equal classes, tensors and values, down to what objects hold."""
    assert type(got) is type(expected), path
    if isinstance(got, torch.Tensor):
        torch.testing.assert_close(got, expected, msg=lambda text: f"{path}: {text}")
    elif isinstance(got, dict):
        assert list(got) == list(expected), path
        for key in got:
            same(got[key], expected[key], f"{path}[{key!r}]")
    elif isinstance(got, list | tuple):
        assert len(got) == len(expected), path
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            same(a, b, f"{path}[{i}]")
    elif type(got).__module__.startswith("transformers"):
        same(vars(got), vars(expected), f"{path}.{type(got).__name__}")
    else:
        assert got == expected, path


def seeded(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """With one state of the random generator: dropout is on."""
    torch.manual_seed(1)
    return function(**given)


@pytest.mark.parametrize("name", [*GENERATORS, *OTHERS])
def test_training(name: str) -> None:
    """Two steps of AdamW, with labels, `ModelOutput` results, and caches among these."""
    eager = make(name).train()
    ours = copy.deepcopy(eager)
    compiled = aot_compile(ours)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (eager, ours)]
    for _ in range(2):
        given = inputs_of(name)
        expected, got = (seeded(f, given) for f in (eager, compiled))
        same(got, expected)
        expected.loss.backward()
        got.loss.backward()
        for (path, p), q in zip(eager.named_parameters(), ours.parameters(), strict=True):
            same(q.grad, p.grad, path)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert len(compiled.recompiles) <= 1, compiled.recompiles  # some note the kind of the labels at the first call


@pytest.mark.parametrize("name", GENERATORS)
def test_generation_with_a_cache(name: str) -> None:
    """A prompt, then tokens one by one: the cache is the caller's, and grows as in eager mode."""
    model = make(name).eval()
    compiled = aot_compile(model)
    tokens, found = ids(), []
    with torch.no_grad():
        for function in (model, compiled):
            cache = DynamicCache(config=model.config)
            results = [function(input_ids=tokens, past_key_values=cache, use_cache=True)]
            for i in range(8):
                step = function(input_ids=tokens[:, i % 8 : i % 8 + 1], past_key_values=cache, use_cache=True)
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
            compiled(input_ids=ids(), past_key_values=cache)
            for _ in range(12):
                compiled(input_ids=ids(1), past_key_values=cache)
    assert cache.get_seq_length() == 20
    assert len(compiled.recompiles) <= 4, compiled.recompiles


def test_a_static_cache() -> None:
    model = make("LlamaForCausalLM").eval()
    compiled = aot_compile(model)
    tokens, found = ids(), []
    with torch.no_grad():
        for function in (model, compiled):
            cache = StaticCache(config=model.config, max_cache_len=16)
            results = [function(input_ids=tokens, past_key_values=cache).logits]
            results += [function(input_ids=tokens[:, i : i + 1], past_key_values=cache).logits for i in range(4)]
            found.append((results, cache))
    same(*found[::-1])


def test_quantized_weights() -> None:
    model = make("LlamaForCausalLM").eval()
    for layer in model.model.layers:
        weight = Int8Weight.from_float(layer.mlp.up_proj.weight)
        layer.mlp.up_proj.weight = torch.nn.Parameter(weight, requires_grad=False)
    given = inputs_of("LlamaForCausalLM")
    expected, got = model(**given), aot_compile(model)(**given)
    same(got, expected)
    gradient = torch.autograd.grad(got.loss, model.model.embed_tokens.weight)
    same(gradient, torch.autograd.grad(expected.loss, model.model.embed_tokens.weight))


def test_a_switch_in_the_configuration() -> None:
    model = make("LlamaForCausalLM").eval()
    compiled = aot_compile(model)
    with torch.no_grad():
        assert compiled(ids()).past_key_values is not None
        model.config.use_cache = False
        assert compiled(ids()).past_key_values is None
        assert compiled(ids(), output_hidden_states=True).hidden_states is not None


@pytest.mark.parametrize("name", [*GENERATORS, *OTHERS])
def test_without_data(name: str) -> None:
    """Built, run forward and backward without data, on a device that is not there: sizes are those of eager mode."""
    model, given = make(name).train(), inputs_of(name)
    expected = model(**given)
    expected.loss.backward()
    with meta("cuda:0"):
        twin = make(name).train()
        got = twin(**{key: MetaTensor.like(x, "cuda:0") if hasattr(x, "dtype") else x for key, x in given.items()})
    got.loss.backward()
    assert all(type(p.grad) is MetaTensor for p in twin.parameters() if p.grad is not None)
    sizes = [[(path, p.grad is None, p.shape) for path, p in m.named_parameters()] for m in (twin, model)]
    assert sizes[0] == sizes[1]
    for key, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert got[key].shape == value.shape and got[key].device == torch.device("cuda:0"), key


@pytest.mark.filterwarnings("ignore")  # of what transformers calls and torch has deprecated
def test_flex_attention() -> None:
    """With gradients on a CPU, where torch itself has none."""
    model = make("LlamaForCausalLM")
    given = inputs_of("LlamaForCausalLM")
    weight = model.model.embed_tokens.weight
    expected = model(**given)
    gradient = torch.autograd.grad(expected.loss, weight)
    model.set_attn_implementation("flex_attention")
    got = aot_compile(model)(**given)
    same(got.logits, expected.logits)
    same(torch.autograd.grad(got.loss, weight), gradient)
