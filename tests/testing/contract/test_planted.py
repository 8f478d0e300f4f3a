"""Mistakes planted in right classes are found, named in the first line, and the advice is right: a few here, all in
`make test-all`.
"""

from __future__ import annotations

import time

import pytest

from subclass_aot.testing import check_subclass
from tests.testing.contract import planted_by_hand, planted_declared
from tests.testing.contract.planted import PLANTED, SOURCES, outcome

MAKERS = [
    value for each in (planted_declared, planted_by_hand) for name, value in vars(each).items() if name[:2] == "m_"
]
FEW = range(0, len(PLANTED), 8)


@pytest.mark.parametrize("number", FEW)
def test_a_mistake_is_found_named_and_told_how_to_mend(number: int) -> None:
    came = outcome(PLANTED[number], number)
    assert came.is_found and came.is_named and came.is_mended, came.lines


def test_each_is_planted_in_what_is_there() -> None:
    assert len({planted.source() for planted in PLANTED}) == len(PLANTED) >= 80
    assert {planted.module for planted in PLANTED} == set(SOURCES)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_the_classes_are_right(make: object) -> None:
    assert callable(make)
    report = check_subclass(lambda: make(), quick=True)
    assert not report.broken, report


@pytest.mark.long
def test_all() -> None:
    outcomes = [outcome(planted, number) for number, planted in enumerate(PLANTED)]
    assert sum(each.is_found for each in outcomes) >= 0.95 * len(PLANTED)
    assert sum(each.is_named for each in outcomes) >= 0.9 * len(PLANTED)
    assert sum(each.is_mended for each in outcomes) >= 0.8 * len(PLANTED)


@pytest.mark.long
def test_quick_takes_two_seconds() -> None:
    for make in MAKERS:
        check_subclass(make, quick=True)  # torch imports its compiler for the first fake tensor
        before = time.process_time()
        check_subclass(make, quick=True)
        assert time.process_time() - before < 2
