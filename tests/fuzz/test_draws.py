"""Programs that draw by `random` and `numpy.random`."""

from __future__ import annotations

import hypothesis
import pytest

from tests.fuzz.draws import STATEMENTS, DrawnNumbers, check_numbers, numbers


@pytest.mark.parametrize("statement", STATEMENTS)
def test_each_statement(statement: str) -> None:
    check_numbers(DrawnNumbers((statement,), True, None, 8))


@hypothesis.settings(max_examples=15, deadline=None, derandomize=True, database=None)
@hypothesis.given(numbers())
def test_programs(drawn: DrawnNumbers) -> None:
    check_numbers(drawn)


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.draws.drawn_compiled", lambda drawn: lambda f: lambda x: f(x) + 1)
    with pytest.raises(AssertionError, match="call 0"):
        check_numbers(DrawnNumbers((STATEMENTS[0],), False, None, 8))
