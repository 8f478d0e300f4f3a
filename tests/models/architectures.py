"""Models of `transformers` as small as they get, with inputs as they are used: padded, masked and labelled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor

Inputs = Callable[[int], dict[str, Any]]
"""Keyword arguments of a model for a batch of so many; the first of them is shorter than the others, and padded."""

LENGTH = 8
WORDS = 64


@dataclass(frozen=True)
class Architecture:
    """One class of a library and how it is used.

    Args:
        options: Of its configuration.
        inputs: Makes what it is called with.
        generates: Whether `generate` is tested, with a cache where the model has one.
    """

    options: dict[str, Any]
    inputs: Inputs
    generates: bool = False


def make(name: str) -> Any:
    """A model with random weights."""
    cls: Any = getattr(transformers, name)
    return cls(cls.config_class(**ARCHITECTURES[name].options))


def tokens(batch: int, length: int = LENGTH) -> Tensor:
    return torch.randint(5, WORDS, (batch, length))


def padding(batch: int, length: int, left: bool) -> Tensor:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[:1, slice(2) if left else slice(-2, None)] = 0
    return mask


def classes(batch: int) -> Tensor:
    return torch.arange(batch) % 3


def causal(batch: int) -> dict[str, Any]:
    """Padded at the left, as for `generate`; what is padded is not learned."""
    ids, mask = tokens(batch), padding(batch, LENGTH, left=True)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def masked(batch: int) -> dict[str, Any]:
    """Padded at the right; two words of each sentence are to be found."""
    ids, mask = tokens(batch), padding(batch, LENGTH, left=False)
    learned = torch.arange(LENGTH) % 4 == 1
    return {"input_ids": ids.masked_fill(learned, 4), "attention_mask": mask, "labels": ids.masked_fill(~learned, -100)}


def classified(batch: int) -> dict[str, Any]:
    return {"input_ids": tokens(batch), "attention_mask": padding(batch, LENGTH, left=False), "labels": classes(batch)}


def translated(batch: int) -> dict[str, Any]:
    labels = tokens(batch, 6).masked_fill(padding(batch, 6, left=False) == 0, -100)
    return {"input_ids": tokens(batch), "attention_mask": padding(batch, LENGTH, left=False), "labels": labels}


def pictures(batch: int, size: int = 16) -> dict[str, Any]:
    return {"pixel_values": torch.rand(batch, 3, size, size)}


def classified_pictures(batch: int) -> dict[str, Any]:
    return {**pictures(batch), "labels": classes(batch)}


def segmented(batch: int) -> dict[str, Any]:
    return {**pictures(batch), "labels": torch.randint(0, 3, (batch, 16, 16))}


def captioned(batch: int) -> dict[str, Any]:
    mask = padding(batch, LENGTH, left=False)
    return {**pictures(batch), "input_ids": tokens(batch), "attention_mask": mask, "return_loss": True}


def described(batch: int) -> dict[str, Any]:
    return {**pictures(batch), **{name: value for name, value in masked(batch).items()}}


def sound(batch: int) -> dict[str, Any]:
    mask = torch.ones(batch, 400, dtype=torch.int64)
    mask[:1, 300:] = 0
    return {"input_values": torch.rand(batch, 400), "attention_mask": mask, "labels": classes(batch)}


def transcribed(batch: int) -> dict[str, Any]:
    return {"input_features": torch.rand(batch, 8, 32), "labels": tokens(batch)}


def series(batch: int) -> dict[str, Any]:
    return {"past_values": torch.rand(batch, 16, 2), "future_values": torch.rand(batch, 4, 2)}


SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": WORDS, "pad_token_id": 0,
}  # fmt: skip
WIDE = {**SMALL, "intermediate_size": 64}
GROUPED = {**WIDE, "num_key_value_heads": 2}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": WORDS, "n_positions": 64, "pad_token_id": 0,
       "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
STATES = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": WORDS, "state_size": 4, "pad_token_id": 0}
PAIR: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": WORDS,
}  # fmt: skip
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": WORDS,
      "decoder_start_token_id": 0}  # fmt: skip
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
          "image_size": 16, "patch_size": 8}  # fmt: skip
STAGES = {"hidden_sizes": [16, 32], "depths": [1, 1], "num_labels": 3}
SOUND = {
    **WIDE, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "mask_time_length": 2,
    "classifier_proj_size": 16, "num_labels": 3, "apply_spec_augment": False,  # which numpy draws, for each sentence
}  # fmt: skip


def decoder(options: dict[str, Any]) -> Architecture:
    return Architecture(options, causal, generates=True)


ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": decoder(GROUPED),
    "MistralForCausalLM": decoder({**GROUPED, "sliding_window": 4}),
    "Qwen2ForCausalLM": decoder(GROUPED),
    "Qwen3ForCausalLM": decoder({**GROUPED, "head_dim": 8}),
    "Gemma2ForCausalLM": decoder({**GROUPED, "head_dim": 8, "sliding_window": 4}),
    "Gemma3ForCausalLM": decoder({**GROUPED, "head_dim": 8, "sliding_window": 4}),
    "GPT2LMHeadModel": decoder(GPT),
    "GPTJForCausalLM": decoder({**GPT, "rotary_dim": 4}),
    "CodeGenForCausalLM": decoder({**GPT, "rotary_dim": 4}),
    "GPTBigCodeForCausalLM": decoder(GPT),
    "OPTForCausalLM": decoder(
        {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64, "pad_token_id": 1}
    ),
    "PhiForCausalLM": decoder(WIDE),
    "Phi3ForCausalLM": decoder(GROUPED),
    "GPTNeoXForCausalLM": decoder(WIDE),
    "BloomForCausalLM": decoder({"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": WORDS}),
    "FalconForCausalLM": decoder(SMALL),
    "CohereForCausalLM": decoder(GROUPED),
    "OlmoForCausalLM": decoder(GROUPED),
    "Olmo2ForCausalLM": decoder(GROUPED),
    "StableLmForCausalLM": decoder(GROUPED),
    "Starcoder2ForCausalLM": decoder(GROUPED),
    "GraniteForCausalLM": decoder(GROUPED),
    "MixtralForCausalLM": decoder({**GROUPED, "num_local_experts": 4}),
    "Qwen2MoeForCausalLM": decoder(
        {**GROUPED, "num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
    ),
    "OlmoeForCausalLM": decoder({**GROUPED, "num_experts": 4, "num_experts_per_tok": 2}),
    "DeepseekV3ForCausalLM": decoder(
        {
            **WIDE, "num_key_value_heads": 4, "moe_intermediate_size": 16, "n_routed_experts": 4, "n_group": 2,
            "topk_group": 1, "num_experts_per_tok": 2, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1,
        }
    ),
    "MambaForCausalLM": decoder(STATES),
    "FalconMambaForCausalLM": decoder(STATES),
    "Mamba2ForCausalLM": decoder({**STATES, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4}),
    "RwkvForCausalLM": decoder({"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": WORDS, "context_length": 32}),
    "BertForSequenceClassification": Architecture({**WIDE, "num_labels": 3}, classified),
    "RobertaForSequenceClassification": Architecture({**WIDE, "num_labels": 3}, classified),
    "DistilBertForSequenceClassification": Architecture(
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": WORDS, "num_labels": 3}, classified
    ),
    "ElectraForMaskedLM": Architecture({**WIDE, "embedding_size": 16}, masked),
    "AlbertForMaskedLM": Architecture({**WIDE, "embedding_size": 16}, masked),
    "DebertaForMaskedLM": Architecture(WIDE, masked),
    "DebertaV2ForMaskedLM": Architecture({**WIDE, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, masked),
    "MPNetForMaskedLM": Architecture(WIDE, masked),
    "ModernBertForMaskedLM": Architecture({**WIDE, "local_attention": 4}, masked),
    "XLNetLMHeadModel": Architecture(
        {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "vocab_size": WORDS}, masked
    ),
    "FunnelForMaskedLM": Architecture(
        {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64, "vocab_size": WORDS, "block_sizes": [1, 1]}, masked
    ),
    "BigBirdForMaskedLM": Architecture({**WIDE, "attention_type": "original_full"}, masked),
    "SqueezeBertForMaskedLM": Architecture({**WIDE, "embedding_size": 32}, masked),
    "FNetForMaskedLM": Architecture(WIDE, lambda batch: {k: v for k, v in masked(batch).items() if "mask" not in k}),
    "LongformerForMaskedLM": Architecture({**WIDE, "attention_window": 4}, masked),
    "T5ForConditionalGeneration": Architecture(T5, translated, generates=True),
    "MT5ForConditionalGeneration": Architecture(T5, translated, generates=True),
    "BartForConditionalGeneration": Architecture(PAIR, translated, generates=True),
    "MBartForConditionalGeneration": Architecture(PAIR, translated, generates=True),
    "PegasusForConditionalGeneration": Architecture(PAIR, translated, generates=True),
    "MarianMTModel": Architecture(
        {**PAIR, "pad_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 2}, translated, generates=True
    ),
    "ViTForImageClassification": Architecture({**VISION, "num_labels": 3}, classified_pictures),
    "DeiTForImageClassification": Architecture({**VISION, "num_labels": 3}, classified_pictures),
    "BeitForImageClassification": Architecture({**VISION, "num_labels": 3}, classified_pictures),
    "Dinov2ForImageClassification": Architecture({**VISION, "num_labels": 3}, classified_pictures),
    "SwinForImageClassification": Architecture(
        {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4,
         "num_labels": 3}, classified_pictures
    ),
    "ConvNextForImageClassification": Architecture({**STAGES, "num_stages": 2}, classified_pictures),
    "ConvNextV2ForImageClassification": Architecture({**STAGES, "num_stages": 2}, classified_pictures),
    "ResNetForImageClassification": Architecture({**STAGES, "embedding_size": 8}, classified_pictures),
    "MobileNetV2ForImageClassification": Architecture({"depth_multiplier": 0.35, "num_labels": 3}, classified_pictures),
    "ViTMAEForPreTraining": Architecture(
        {**VISION, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2,
         "decoder_intermediate_size": 32}, pictures
    ),
    "SegformerForSemanticSegmentation": Architecture(
        {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32],
         "patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
         "decoder_hidden_size": 16, "num_labels": 3}, segmented
    ),
    "CLIPModel": Architecture(
        {"text_config": {**WIDE, "eos_token_id": 3}, "vision_config": VISION, "projection_dim": 16}, captioned
    ),
    "SiglipModel": Architecture({"text_config": WIDE, "vision_config": VISION}, captioned),
    "BlipForConditionalGeneration": Architecture(
        {"text_config": {**WIDE, "encoder_hidden_size": 32}, "vision_config": VISION}, described
    ),
    "Wav2Vec2ForSequenceClassification": Architecture(SOUND, sound),
    "HubertForSequenceClassification": Architecture(
        {**SOUND, "layerdrop": 0.0}, sound  # which looks at a number that it draws
    ),
    "WhisperForConditionalGeneration": Architecture(
        {**PAIR, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 32, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "suppress_tokens": None,
         "begin_suppress_tokens": None}, transcribed, generates=True
    ),
    "PatchTSTForPrediction": Architecture(
        {"num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4, "d_model": 16,
         "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 16, "prediction_length": 4}, series
    ),
}  # fmt: skip
