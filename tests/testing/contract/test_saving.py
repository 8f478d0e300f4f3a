"""Clauses 37 and 38, on classes with one mistake each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.testing.contract.classes import OURS, Held, Scaled, broken, held, scaled
from tests.testing.contract.wrong_by_hand import IgnoresData, KeepsDtype, NotSafe
from tests.testing.contract.wrong_declared import ForgetsNote, SharedCopy

ONLY = (37, 38)


class IsItsData(Held):
    @property
    def data(self) -> Any:
        return self

    @data.setter
    def data(self, other: Any) -> None:
        self.held = other.held


@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    assert broken(OURS[name][0], ONLY) == {}


def test_right_class() -> None:
    assert broken(scaled(Scaled), ONLY) == {}
    assert broken(held(Held), ONLY) == {}


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (lambda: ForgetsNote(torch.randn(4, 6), torch.rand(4, 1), "a"), "pickle", "names and context are"),
        (scaled(SharedCopy), "copy.deepcopy", "it shares memory with the tensor"),
        (held(KeepsDtype), "Module.to(dtype)", "it has torch.float32, not torch.float64, and nothing was said"),
    ],
)
def test_one_mistake(make: Any, name: str, says: str) -> None:
    assert says in broken(make, ONLY)[name]


def test_classes_by_hand() -> None:
    """`weights_only` does not know one, and `.data =` leaves the inner tensor of another as it was."""
    found = broken(held(NotSafe), ONLY)
    assert set(found) == {"torch.save", "torch.load(mmap=True)", "state_dict"}
    assert "UnpicklingError" in found["torch.save"]
    assert broken(held(IgnoresData), ONLY)["data"].startswith("the tensor has wrong values")
    assert broken(held(IsItsData), ONLY)["data"] == "x.data is a part of what autograd sees"
