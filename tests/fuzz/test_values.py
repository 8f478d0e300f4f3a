"""Random programs of texts and of values with attributes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from tests.fuzz import values
from tests.fuzz.values import ATTRIBUTES, KINDS, TENSORS, TEXTS, DrawnValues, check_values, described

FIRST = [
    DrawnValues(KINDS[i % len(KINDS)], (line.format(TENSORS[i % len(TENSORS)], "x"), "out.append(v)"), i % 2 == 0, None)
    for i, line in enumerate((*TEXTS, *ATTRIBUTES))
]


@pytest.mark.filterwarnings("ignore:.*The function itself ran:UserWarning")
@pytest.mark.parametrize("drawn", FIRST, ids=lambda drawn: drawn.lines[0])
def test_each_statement(drawn: DrawnValues) -> None:
    check_values(drawn)


@pytest.mark.filterwarnings("ignore:.*The function itself ran:UserWarning")
@settings(max_examples=15)
@given(values.values())
def test_programs(drawn: DrawnValues) -> None:
    check_values(drawn)


def test_differences_are_found() -> None:
    x = torch.ones(2)
    one, other = values.Row([x]), values.Row([x])
    assert described(one, one) != described(one, other)
    other.t = x  # type: ignore[attr-defined]
    assert described(one, x) != described(other, x)
