"""Twelve models at width 512, where kernels take the time: what is compiled may be 2% slower there at the most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

Inputs = dict[str, Any]

WIDTH, WORDS, BATCH, LENGTH = 512, 1000, 4, 32
_DECODER = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 2 * WIDTH,
    "vocab_size": WORDS, "pad_token_id": 0, "use_cache": False,
}  # fmt: skip
_GROUPED = {**_DECODER, "num_key_value_heads": 4}
_ENCODER = {key: value for key, value in _DECODER.items() if key != "use_cache"}
_PAIR = {
    "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 8,
    "decoder_attention_heads": 8, "encoder_ffn_dim": 2 * WIDTH, "decoder_ffn_dim": 2 * WIDTH, "vocab_size": WORDS,
    "pad_token_id": 0, "decoder_start_token_id": 1, "use_cache": False,
}  # fmt: skip
_T5 = {
    "d_model": WIDTH, "d_kv": 64, "d_ff": 2 * WIDTH, "num_layers": 2, "num_heads": 8, "vocab_size": WORDS,
    "decoder_start_token_id": 0, "use_cache": False,
}  # fmt: skip
_GPT = {
    "n_embd": WIDTH, "n_layer": 2, "n_head": 8, "vocab_size": WORDS, "n_positions": LENGTH, "use_cache": False,
}  # fmt: skip
_STATES = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "state_size": 16, "vocab_size": WORDS, "use_cache": False,
    "use_associative_scan": False,  # a parallel scan, which the model runs only where it is compiled
}  # fmt: skip
_PICTURES = {"image_size": 64, "patch_size": 8, "num_labels": 3}


def _words() -> Inputs:
    ids = torch.randint(5, WORDS, (BATCH, LENGTH))
    return {"input_ids": ids, "labels": ids}


def _pictures() -> Inputs:
    return {"pixel_values": torch.rand(BATCH, 3, 64, 64), "labels": torch.arange(BATCH) % 3}


def _sound() -> Inputs:
    return {"input_features": torch.rand(BATCH, 80, 64), "labels": torch.randint(5, WORDS, (BATCH, LENGTH))}


def _of(name: str, **options: Any) -> Callable[[], nn.Module]:
    """Makes what makes a model of `transformers`."""

    def build() -> nn.Module:
        cls: Any = getattr(transformers, name)
        made: nn.Module = cls(cls.config_class(**options))
        return made

    return build


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs]]] = {
    "Llama": (_of("LlamaForCausalLM", **_GROUPED), _words),
    "Gemma 2": (_of("Gemma2ForCausalLM", **_GROUPED, head_dim=64, sliding_window=16), _words),
    "GPT-2": (_of("GPT2LMHeadModel", **_GPT), _words),
    "Mixtral": (_of("MixtralForCausalLM", **_GROUPED, num_local_experts=4), _words),
    "Mamba": (_of("MambaForCausalLM", **_STATES), _words),
    "BERT": (_of("BertForMaskedLM", **_ENCODER), _words),
    "T5": (_of("T5ForConditionalGeneration", **_T5), _words),
    "Whisper": (_of("WhisperForConditionalGeneration", **_PAIR, max_source_positions=32, num_mel_bins=80), _sound),
    "ViT": (_of("ViTForImageClassification", **_ENCODER, **_PICTURES), _pictures),
    "Swin": (
        _of("SwinForImageClassification", embed_dim=WIDTH // 4, depths=[2, 2, 2], num_heads=[4, 8, 16],
            window_size=4, image_size=64, patch_size=4, num_labels=3),
        _pictures,
    ),
    "ConvNeXt": (
        _of("ConvNextForImageClassification", hidden_sizes=[WIDTH // 2, WIDTH], depths=[2, 2], num_stages=2,
            num_labels=3),
        _pictures,
    ),
    "ResNet": (
        _of("ResNetForImageClassification", embedding_size=64, hidden_sizes=[WIDTH // 4, WIDTH // 2, WIDTH],
            depths=[2, 2, 2], num_labels=3),
        _pictures,
    ),
}  # fmt: skip
"""By what a row is called: what makes a model, and what it is called with."""
