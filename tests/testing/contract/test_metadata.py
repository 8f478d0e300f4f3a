"""Clauses 1 to 6, on classes with one mistake each."""

from __future__ import annotations

import torch

from tests.testing.contract.classes import Held, Scaled, broken, held, scaled
from tests.testing.contract.wrong_by_hand import Bits, LosesGradient, OwnMemory
from tests.testing.contract.wrong_declared import OtherDtype, SizeOfValues

ONLY = (1, 2, 3, 4, 5)


def test_right_classes() -> None:
    assert broken(scaled(Scaled), ONLY) == {}
    assert broken(held(Held), ONLY) == {}


def test_other_dtype_outside() -> None:
    assert broken(scaled(OtherDtype), (2,)) == {
        "outer metadata": "dtype of x is torch.float64 outside, and torch.float32 of what it means"
    }


def test_negative_bit_that_is_lost() -> None:
    found = broken(held(Bits), (3,))
    assert list(found) == ["negative bit"] and "times one, has wrong values, off by 2" in found["negative bit"]


def test_inner_tensor_that_requires_grad() -> None:
    found = broken(held(LosesGradient), (4,))
    assert list(found) == ["inner requires grad"] and "['held'] require grad" in found["inner requires grad"]


def test_size_that_is_read_of_values() -> None:
    found = broken(lambda: SizeOfValues(torch.randn(12), torch.tensor([3, 3, 3, 3])), ONLY)
    assert "fake" in found


def test_memory_of_its_own() -> None:
    assert set(broken(held(OwnMemory), (1,))) == {"storage"}
