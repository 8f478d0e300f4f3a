"""Small models of `diffusers`: convolutions with attention, an autoencoder that samples, and transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import (
    AutoencoderKL,
    DiTTransformer2DModel,
    SD3Transformer2DModel,
    UNet2DConditionModel,
    UNet2DModel,
)

from tests.models.checks import Inputs, check_inference, check_training, check_without_data

BLOCKS: dict[str, Any] = {"layers_per_block": 1, "block_out_channels": (8, 16), "norm_num_groups": 4, "sample_size": 8}


def unet() -> Any:
    down, up = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
    return UNet2DModel(in_channels=3, out_channels=3, down_block_types=down, up_block_types=up, **BLOCKS)


def conditional_unet() -> Any:
    down, up = ("CrossAttnDownBlock2D", "DownBlock2D"), ("UpBlock2D", "CrossAttnUpBlock2D")
    blocks = {**BLOCKS, "down_block_types": down, "up_block_types": up}
    return UNet2DConditionModel(in_channels=4, out_channels=4, cross_attention_dim=16, attention_head_dim=4, **blocks)


def autoencoder() -> Any:
    down, up = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
    return AutoencoderKL(latent_channels=4, down_block_types=down, up_block_types=up, **BLOCKS)


def dit() -> Any:
    return DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, norm_num_groups=4,
        sample_size=8, patch_size=2, num_embeds_ada_norm=10,
    )  # fmt: skip


def sd3() -> Any:
    return SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=16, caption_projection_dim=16, pooled_projection_dim=16, out_channels=4,
        pos_embed_max_size=8,
    )  # fmt: skip


def times(batch: int) -> torch.Tensor:
    return torch.randint(0, 1000, (batch,))


MODELS: dict[str, tuple[Callable[[], Any], Inputs]] = {
    "UNet2DModel": (unet, lambda n: {"sample": torch.randn(n, 3, 8, 8), "timestep": times(n)}),
    "UNet2DConditionModel": (
        conditional_unet,
        lambda n: {
            "sample": torch.randn(n, 4, 8, 8), "timestep": times(n), "encoder_hidden_states": torch.randn(n, 5, 16),
        },
    ),
    "AutoencoderKL": (autoencoder, lambda n: {"sample": torch.randn(n, 3, 16, 16), "sample_posterior": True}),
    "DiTTransformer2DModel": (
        dit,
        lambda n: {
            "hidden_states": torch.randn(n, 4, 8, 8), "timestep": times(n), "class_labels": torch.arange(n) % 10,
        },
    ),
    "SD3Transformer2DModel": (
        sd3,
        lambda n: {
            "hidden_states": torch.randn(n, 4, 8, 8), "timestep": times(n), "pooled_projections": torch.randn(n, 16),
            "encoder_hidden_states": torch.randn(n, 5, 16),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_training(name: str) -> None:
    make, inputs = MODELS[name]
    check_training(make(), inputs)


@pytest.mark.parametrize("name", MODELS)
def test_inference(name: str) -> None:
    make, inputs = MODELS[name]
    check_inference(make(), inputs)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("compiled", [False, True])
def test_without_data(name: str, compiled: bool) -> None:
    make, inputs = MODELS[name]
    check_without_data(make(), inputs, compiled)
