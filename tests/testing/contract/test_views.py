"""Clause 22, on classes with one mistake each."""

from __future__ import annotations

import re

import pytest
import torch

from tests.testing.contract.classes import OURS, Held, Scaled, broken, held, scaled
from tests.testing.contract.wrong_by_hand import DenseViews, ShortSplit
from tests.testing.contract.wrong_declared import CopyingSlice, ForgottenTranspose, ShortGroup

ONLY = (22,)


@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    assert broken(OURS[name][0], ONLY) == {}


def test_right_classes() -> None:
    assert broken(held(Held), ONLY) == {}
    assert broken(scaled(Scaled), ONLY) == {}


def test_slice_that_copies() -> None:
    found = broken(scaled(CopyingSlice), ONLY)
    slices = {"x[:1]", "x[..., 1:]", "x[..., :half]", "x[:1].squeeze(0)", "x.narrow(0, 0, 1)"}
    assert slices <= set(found)
    assert all(re.search(r":|split|chunk|narrow|squeeze", name) for name in found)
    assert "a view holds copies of inner tensors" in found["x[:1]"]


def test_t_that_forgets_to_transpose() -> None:
    found = broken(scaled(ForgottenTranspose, 4, 4), ONLY)
    assert set(found) == {"x.t()", "x.transpose(0, -1)", "x.mT"}
    assert all("the view has" in why for why in found.values())


def test_view_that_is_dense() -> None:
    found = broken(held(DenseViews), ONLY)
    assert set(found) == {"x[0]", "x[-1]", "x.select(-1, -1)"} and "the view is a Tensor" in found["x[0]"]


def test_too_few_views() -> None:
    assert broken(held(ShortSplit), ONLY) == {"x.unbind(0)": "3 views, not 4", "x.unbind(-1)": "5 views, not 6"}


def test_blocks_that_are_not_as_long_as_declared() -> None:
    found = broken(lambda: ShortGroup(torch.ones(4, 12), torch.ones(4, 2).cumsum(1)), ONLY)
    assert set(found) == {"cuts", "x.chunk(2, -1)"} and "x.narrow(1, 6, 6) has wrong values" in found["cuts"]


def test_a_class_without_readings_says_so() -> None:
    assert broken(lambda: Held(torch.randn(4, 6)), ONLY, []) == {}
