"""Random programs of what is passed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from tests.fuzz import passed
from tests.fuzz.passed import CHANGING, NUMBERS, OF_NUMBERS, OF_TABLES, OF_VALUES, VALUES, DrawnPassed, check_passed

LINES = [
    *(line.format(NUMBERS[i % len(NUMBERS)], NUMBERS[i % 5]) for i, line in enumerate(OF_NUMBERS)),
    *(line.format(VALUES[i % len(VALUES)], VALUES[i % 5]) for i, line in enumerate(OF_VALUES)),
    *OF_TABLES,
]


@pytest.mark.filterwarnings("ignore:.*The function itself ran:UserWarning")
@pytest.mark.parametrize("line", LINES)
def test_each_statement(line: str) -> None:
    keeps = len(line) % 2 == 0
    check_passed(DrawnPassed((line, "out.append(n)"), frozenset(CHANGING), keeps, "dict", not keeps, None))


@pytest.mark.filterwarnings("ignore:.*The function itself ran:UserWarning")
@settings(max_examples=15)
@given(passed.passed())
def test_programs(drawn: DrawnPassed) -> None:
    check_passed(drawn)


def test_differences_are_found() -> None:
    drawn = DrawnPassed(("x = x * n", "kept.append(t)"), frozenset({"step"}), False, "dict", True, None)
    wrong = DrawnPassed(("x = x * n", "kept.append('b')"), frozenset({"step"}), False, "dict", True, None)
    run = passed.run
    assert run(drawn, lambda f: f) == run(drawn, lambda f: f) != run(wrong, lambda f: f)
    assert run(drawn, lambda f: f) != run(drawn, lambda f: lambda **given: f(**{**given, "n": 3}))
    assert passed.described(torch.ones(1)) != passed.described(torch.ones(1, dtype=torch.float64))
    assert passed.described({"a": 1, "b": 2}) != passed.described({"b": 2, "a": 1})
    assert passed.described(1) != passed.described(True)
