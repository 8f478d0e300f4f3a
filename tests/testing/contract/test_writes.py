"""Clause 23, on classes with one mistake each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.testing.contract.classes import OURS, Held, Scaled, broken, held, scaled
from tests.testing.contract.wrong_by_hand import ForgetsOut, OtherObject
from tests.testing.contract.wrong_declared import CopiesWrong, SharedScale

ONLY = (23,)


@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    assert broken(OURS[name][0], ONLY) == {}


def test_right_classes() -> None:
    assert broken(held(Held), ONLY) == {}
    assert broken(scaled(Scaled), ONLY) == {}


def test_write_to_columns_that_changes_the_rows() -> None:
    found = broken(scaled(SharedScale), ONLY)
    assert set(found) == {"write to some columns", "write to a transposed view"}
    assert all("the whole tensor has wrong values" in why for why in found.values())


def test_another_object_in_place() -> None:
    found = broken(held(OtherObject), ONLY)
    writes = {"x.mul_(2)", "x.mul_(x)", "x.mul_(2) in inference mode", "write to some columns, larger"}
    assert set(found) == writes
    assert "the tensor has wrong values" in found["x.mul_(2)"]


def test_out_that_is_not_written() -> None:
    found = broken(held(ForgetsOut), ONLY)
    assert set(found) == {"out="} and "out has wrong values" in found["out="]


class Unread(Scaled):
    pass


@Unread.implements(torch.ops.aten.copy_.default)
def _(target: Any, source: Any, non_blocking: bool = False) -> Any:
    if isinstance(target, Unread):
        return NotImplemented
    target.copy_(source.codes)
    return target


def test_dense_that_takes_something_else() -> None:
    found = broken(scaled(Unread), ONLY)
    assert set(found) == {"dense.copy_(x)"} and "the dense tensor has wrong values" in found["dense.copy_(x)"]


def test_copy_that_forgets_a_field() -> None:
    found = broken(scaled(CopiesWrong), ONLY)
    assert "x.copy_(x)" in found and "the tensor has wrong values" in found["x.copy_(x)"]
