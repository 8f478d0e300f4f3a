"""A vision transformer with the layout of ViT-B/16, small enough to read and to train."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    """Attention of every token to every token, `[batch, token, width]` to the same.

    Args:
        width: Features of a token.
        heads: Independent attentions that share the features between them.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.in_proj(x).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        heads = F.scaled_dot_product_attention(query, key, value)
        mixed: Tensor = self.out_proj(heads.transpose(1, 2).reshape(batch, tokens, width))
        return mixed


class Block(nn.Module):
    """One encoder layer: attention, then a two-layer perceptron, each on normalized input and added to it."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = SelfAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.grow = nn.Linear(width, hidden)
        self.shrink = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attention(self.ln_1(x))
        hidden = F.gelu(self.grow(self.ln_2(x)))
        out: Tensor = x + self.shrink(hidden)
        return out


class ViT(nn.Module):
    """A vision transformer; the defaults are ViT-B/16 (86 million parameters).

    Args:
        image: Pixels along one side of a square image.
        patch: Pixels along one side of a square patch; divides `image`.
        channels: Values per pixel.
        layers: Encoder layers.
        width: Features of a token.
        heads: Attention heads; divides `width`.
        hidden: Features inside the perceptron of a layer.
        classes: Outputs.

    >>> vit = ViT(image=8, patch=4, channels=1, layers=1, width=8, heads=2, hidden=16, classes=10)
    >>> vit(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        *,
        image: int = 224,
        patch: int = 16,
        channels: int = 3,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        hidden: int = 3072,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        patches = (image // patch) ** 2
        self.conv_proj = nn.Conv2d(channels, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embedding = nn.Parameter(torch.empty(1, patches + 1, width).normal_(std=0.02))
        self.layers = nn.Sequential(*[Block(width, heads, hidden) for _ in range(layers)])
        self.ln = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores `[batch, classes]` of images `[batch, channels, image, image]`."""
        tokens = self.conv_proj(images).flatten(2).transpose(1, 2)
        first = self.class_token.expand(tokens.shape[0], -1, -1)
        tokens = torch.cat([first, tokens], 1) + self.pos_embedding
        tokens = self.ln(self.layers(tokens))
        scores: Tensor = self.head(tokens[:, 0])
        return scores
