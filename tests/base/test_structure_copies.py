"""Copies of structure: with the values there are, or zeros."""

from __future__ import annotations

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.base.structure_copies import copied_to
from subclass_aot.tensors import Sparse24Weight

CPU, META = torch.device("cpu"), torch.device("meta")


@pytest.mark.parametrize("device", [None, CPU])
def test_values_are_copied(device: torch.device | None) -> None:
    places = torch.tensor([2, 0, 1])
    copied = copied_to(places, device)
    assert copied.equal(places) and copied.data_ptr() != places.data_ptr()


def test_without_values_it_is_zero() -> None:
    assert copied_to(torch.ones(2, 3), META).device == META
    made = copied_to(torch.ones(2, 3, dtype=torch.int32, device=META).t(), CPU)
    assert made.equal(torch.zeros(3, 2, dtype=torch.int32)) and made.stride() == (1, 3)


def test_wrappers_stay_wrappers_at_any_depth() -> None:
    sparse = Sparse24Weight.from_float(torch.randn(2, 8))
    made = copied_to(TwoTensor(sparse, sparse).to(META), CPU)
    assert type(made) is TwoTensor and type(made.a) is Sparse24Weight and made.shape == (2, 8)
    assert not made.a.kept.any() and not made.b.places.any()
