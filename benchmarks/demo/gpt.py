"""A small GPT whose weights are frozen in eight bits, each beside low-rank factors that are trained."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

import subclass_aot as sa
from subclass_aot.tensors import Int8Weight, LoraWeight


class GPTBlock(nn.Module):
    """Attention of every token to those before it, then a perceptron, each on normalized input and added to it.

    Args:
        width: Features of a token.
        heads: Attention heads; divides `width`.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.other_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.grow = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.attend(self.norm(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mix(heads.transpose(1, 2).reshape(batch, tokens, width))
        out: Tensor = x + self.shrink(F.gelu(self.grow(self.other_norm(x))))
        return out


class GPT(nn.Module):
    """Predicts the next token of each prefix of a text.

    Args:
        vocabulary: How many tokens there are.
        context: The longest text.
        layers: Blocks.
        width: Features of a token.
        heads: Attention heads of a block.

    >>> import torch
    >>> GPT(vocabulary=7, context=5, layers=1, width=8, heads=2)(torch.zeros(3, 5, dtype=torch.long)).shape
    torch.Size([3, 5, 7])
    """

    def __init__(
        self, *, vocabulary: int = 128, context: int = 32, layers: int = 4, width: int = 64, heads: int = 4
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList([GPTBlock(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, text: Tensor) -> Tensor:
        x = self.tokens(text) + self.positions.weight[: text.shape[1]]
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.head(self.norm(x))
        return out


def adapted(gpt: GPT, rank: int = 4, quantized: bool = True) -> GPT:
    """Freezes the weights of the linear layers in all blocks, and puts low-rank factors beside them, which are trained.

    Args:
        gpt: The model, which is changed.
        rank: The inner size of the factors.
        quantized: Whether what is frozen has eight bits; else it stays float.
    """
    for module in gpt.layers.modules():
        if isinstance(module, nn.Linear):
            frozen = module.weight.detach()
            base = Int8Weight.from_float(frozen) if quantized else frozen
            module.weight = nn.Parameter(LoraWeight.beside(base, rank), requires_grad=False)
            sa.train_fields(module, "weight", "left", "right")
    return gpt
