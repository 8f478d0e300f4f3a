"""Facts as values: what is the same, and what is not."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

from subclass_aot.engine.facts.fact import Code, Constant, Context, Fact, Itself, Kind, Told
from tests.engine.facts.calls import Tagged

SAME: list[tuple[Any, Any]] = [
    (Constant(1), Constant(1)),
    (Constant(float("nan")), Constant(float("nan"))),
    (Constant([1, 2]), Constant([1, 2])),
    (Code.of(len), Code.of(len)),
    (Context(Tagged, Constant([1])), Context(Tagged, Constant([1]))),
    (Told("a", "x"), Told("b", "x")),
]
OTHERS: list[tuple[Any, Any]] = [
    (Constant(1), Constant(1.0)),
    (Constant(0.0), Constant(-0.0)),
    (Constant(len), Constant(max)),
    (Code.of(lambda x: x), Code.of(lambda x: x)),
    (Itself([]), Itself([])),
    (Context(Tagged, Constant([1])), Context(torch.Tensor, Constant([1]))),
    (Told("a", "x"), Told("a", "y")),
]


@pytest.mark.parametrize("number", range(len(SAME)))
def test_what_is_the_same(number: int) -> None:
    one, other = SAME[number]
    assert one == other and Fact("x", Kind.VALUE, one) == Fact("x", Kind.VALUE, other)


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_what_differs(number: int) -> None:
    one, other = OTHERS[number]
    assert one != other and one == copy.copy(one)


def test_facts_that_are_text_go_through_pickle() -> None:
    fact = Fact("x", Kind.TENSOR, Told("a", "exactly a"))
    assert pickle.loads(pickle.dumps(fact)) == fact and len(Told("a", "x").digest) == 8
