"""Clauses 39 to 41, on classes with one mistake each."""

from __future__ import annotations

import pytest
import torch

from tests.testing.contract.classes import OURS, Held, broken, held
from tests.testing.contract.wrong_by_hand import SignOfNorm, marked
from tests.testing.contract.wrong_declared import CoarseState

ONLY = (39, 40, 41)


@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    assert broken(OURS[name][0], ONLY) == {}


def test_right_class() -> None:
    assert broken(held(Held), ONLY) == {}


def test_optimizer_state_in_eight_bits() -> None:
    found = broken(lambda: CoarseState.from_float(torch.randn(4, 6)), ONLY)
    assert "AdamW" in found and "the parameter has wrong values" in found["AdamW"]


def test_a_parameter_without_its_attribute() -> None:
    assert broken(marked, ONLY) == {"Parameter": "['mark'] are not there any more"}


def test_a_norm_that_is_a_sum() -> None:
    assert set(broken(held(SignOfNorm), ONLY)) == {"clip_grad_norm_"}
