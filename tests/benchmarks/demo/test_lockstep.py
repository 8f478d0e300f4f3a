"""The comparison of the demo: equal trainings are found equal, and different ones are not."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks.demo.digits import Digits, quantized_vit
from benchmarks.demo.lockstep import Lockstep, Record, batches
from subclass_aot import Int8Weight, QuantAwareWeight


@pytest.fixture(scope="module")
def digits() -> Digits:
    return Digits.load()


def test_digits_are_split_without_overlap(digits: Digits) -> None:
    assert digits.train_images.shape == (1437, 1, 8, 8) and digits.test_images.shape == (360, 1, 8, 8)
    assert digits.train_images.min() == 0 and digits.train_images.max() == 1
    assert set(digits.test_labels.tolist()) == set(range(10))
    everything = torch.cat([digits.train_images, digits.test_images]).flatten(1)
    assert len(everything.unique(dim=0)) == 1797


def test_batches_are_new_in_each_epoch_and_the_same_in_each_run(digits: Digits) -> None:
    first, second = (list(batches(digits, epochs=2, size=500)) for _ in range(2))
    assert len(first) == 4
    for (images, labels), (same_images, same_labels) in zip(first, second, strict=True):
        assert torch.equal(images, same_images) and torch.equal(labels, same_labels)
    assert not torch.equal(first[0][0], first[2][0])


def test_compiled_training_equals_eager_and_moves_what_it_should(digits: Digits) -> None:
    training = Lockstep(quantized_vit())
    start = {name: p.detach().clone() for name, p in training.compiled.named_parameters()}
    for images, labels in list(batches(digits, epochs=1, size=96))[:3]:
        training.step(images, labels)
    record = training.record
    assert record.loss_difference <= 1e-6 and record.parameter_difference <= 1e-6
    assert len(record.compiled_losses) == 3 and all(math.isfinite(loss) for loss in record.compiled_losses)
    kinds = set()
    for name, parameter in training.compiled.named_parameters():
        kinds.add(type(parameter))
        if isinstance(parameter, Int8Weight):
            assert torch.equal(parameter.codes, start[name].codes)
        elif isinstance(parameter, QuantAwareWeight):
            assert type(parameter.grad) is type(training.eager.get_parameter(name).grad)
            assert not torch.equal(parameter.master, start[name].master)
        else:
            assert not torch.equal(parameter, start[name]), name
    assert {Int8Weight, QuantAwareWeight} <= kinds


@pytest.mark.parametrize("name", ["layers.0.grow.bias", "layers.0.shrink.weight"])
def test_a_difference_is_found(digits: Digits, name: str) -> None:
    training = Lockstep(quantized_vit())
    with torch.no_grad():
        training.compiled.get_parameter(name).add_(0.25)
    training.step(*next(batches(digits, epochs=1, size=96)))
    assert training.record.loss_difference > 1e-5
    assert training.record.parameter_difference > 0.1


def test_nan_is_no_equality() -> None:
    nan = float("nan")
    record = Record(eager_losses=[1.0, 1.0], compiled_losses=[nan, 1.0], parameter_differences=[0.0, nan, 0.0])
    assert math.isnan(record.loss_difference) and math.isnan(record.parameter_difference)
