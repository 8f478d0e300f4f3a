"""Clauses 6 and 21: where the tensors come from that operators inside dispatch meet."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.testing.contract.tracing import Watch
from tests.testing.contract.classes import OURS, Held, broken, held
from tests.testing.contract.wrong_by_hand import ByNumpy, OwnTable, ReadsValue

ONLY = (6, 21)


@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    assert broken(OURS[name][0], ONLY) == {}


def test_right_class() -> None:
    assert broken(held(Held), ONLY) == {}


@pytest.mark.parametrize(
    ("cls", "name", "says"),
    [
        (OwnTable, "operands", "x.sum(0): aten.select.int takes a torch.float32 of [2] that no operator made"),
        (ByNumpy, "results", "x.softmax(-1): no operator leads from the inner tensors to the result"),
        (ReadsValue, "no reads", "x.mean() reads a value of a torch.float32 of [] into Python"),
    ],
)
def test_one_mistake(cls: Any, name: str, says: str) -> None:
    found = broken(held(cls), ONLY)
    assert set(found) == {name} and says in found[name]


def test_what_a_watch_sees() -> None:
    x, table = torch.ones(2), torch.ones(3)
    with Watch([x]) as watch:
        view, made = x[:1], torch.zeros(2)
        before = watch.depends(made)
        made.copy_(x)
        constant = torch.tensor([1.0])
        total = table.sum()
        torch.equal(x, made)
        torch.equal(constant, constant)
    assert watch.depends(view) is True and (before, watch.depends(made)) == (False, True)
    assert watch.depends(constant) is False
    assert [(name, stranger is table) for name, stranger in watch.strangers] == [("aten.sum.default", True)]
    assert watch.depends(total) is False and watch.depends(torch.ones(2)) is None
    assert [read is each for read, each in zip(watch.reads, (x, made), strict=True)] == [True, True]
