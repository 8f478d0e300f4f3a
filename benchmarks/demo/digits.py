"""Handwritten digits, and a small vision transformer for them whose weights are wrapper subclasses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.demo.vit import Block, ViT
from subclass_aot.tensors import Int8Weight, QuantAwareWeight


@dataclass(frozen=True)
class Digits:
    """Grey images `float32[N, 1, 8, 8]` in 0 to 1 with their labels `int64[N]`, split once and for all."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    @staticmethod
    def load(held_out: int = 360) -> Digits:
        """The 1,797 digits that come with scikit-learn; nothing is downloaded.

        Args:
            held_out: How many images are kept for the test; the same ones each time.
        """
        from sklearn.datasets import load_digits

        raw = load_digits()
        images = torch.tensor(raw.images, dtype=torch.float32).unsqueeze(1) / 16
        labels = torch.tensor(raw.target)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        test, train = order[:held_out], order[held_out:]
        return Digits(images[train], labels[train], images[test], labels[test])


def quantized_vit() -> ViT:
    """A transformer for digits; in each layer two weights are frozen in eight bits, and two are trained for eight bits.

    Embeddings, norms, biases and the head are dense, and trained.
    """
    vit = ViT(image=8, patch=2, channels=1, layers=3, width=48, heads=4, hidden=96, classes=10)
    for block in vit.layers:
        assert isinstance(block, Block)
        for linear in (block.self_attention.out_proj, block.grow):
            linear.weight = nn.Parameter(Int8Weight.from_float(linear.weight), requires_grad=False)
        for linear in (block.self_attention.in_proj, block.shrink):
            linear.weight = nn.Parameter(QuantAwareWeight(linear.weight.detach()))
    return vit


def describe_weights(model: nn.Module) -> str:
    """How many parameters of which class a model has.

    >>> describe_weights(quantized_vit())
    '6 QuantAwareWeight, 6 Int8Weight, 32 dense'
    """
    kinds = Counter(type(p).__name__ for p in model.parameters())
    kinds["dense"] = kinds.pop("Parameter")
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())
