"""The data of the demo, and the model that is trained on it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from benchmarks.demo.digits import Digits, describe_weights, quantized_vit
from subclass_aot import Int8Weight, QuantAwareWeight


def test_digits_are_the_same_each_time() -> None:
    one, other = Digits.load(held_out=100), Digits.load(held_out=100)
    assert one.train_images.shape == (1697, 1, 8, 8) and one.test_labels.shape == (100,)
    assert torch.equal(one.test_images, other.test_images) and torch.equal(one.train_labels, other.train_labels)
    assert (one.train_images.min(), one.train_images.max(), one.train_labels.unique().numel()) == (0, 1, 10)


def test_images_keep_their_labels() -> None:
    from sklearn.datasets import load_digits

    raw, digits = load_digits(), Digits.load()
    known = {image.tobytes(): label for image, label in zip(raw.images, raw.target, strict=True)}
    for image, label in zip(digits.test_images[:20], digits.test_labels[:20], strict=True):
        assert known[(image[0] * 16).double().numpy().tobytes()] == label


def test_two_weights_of_a_layer_are_frozen_and_two_are_trained() -> None:
    vit = quantized_vit()
    weights = [p for p in vit.parameters() if type(p) in (Int8Weight, QuantAwareWeight)]
    assert Counter((type(p), p.requires_grad) for p in weights) == {(Int8Weight, False): 6, (QuantAwareWeight, True): 6}
    assert vit(torch.rand(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("count", [1, 3])
def test_weights_are_counted_by_class(count: int) -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(count)])
    model[0].weight = torch.nn.Parameter(QuantAwareWeight(torch.ones(2, 2)))
    assert describe_weights(model) == f"1 QuantAwareWeight, {2 * count - 1} dense"
