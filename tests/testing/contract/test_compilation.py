"""Clauses 32 to 36 and 42, on classes with one mistake each."""

from __future__ import annotations

import pytest
import torch

from subclass_aot import Float8Weight
from subclass_aot.testing import check_subclass
from tests.testing.contract.classes import OURS, PRODUCTS, Held, broken, held
from tests.testing.contract.wrong_by_hand import hidden

ONLY = (32, 33, 34, 36, 42)


@pytest.mark.long
@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    expected = {each for number, each in PRODUCTS if number in ONLY} if name == "QuantAwareWeight" else set()
    assert set(broken(OURS[name][0], ONLY)) == expected


def test_right_class() -> None:
    assert broken(held(Held), ONLY) == {}


def test_sizes_that_symbols_take_for_one() -> None:
    report = check_subclass(lambda: Held(torch.randn(4, 4)), only=[36])
    assert {finding.verdict for finding in report.findings} == {"does not apply"}


def test_other_values_of_a_dtype_without_arithmetic() -> None:
    report = check_subclass(lambda: Float8Weight.from_float(torch.randn(4, 6)), only=[34])
    assert {(f.clause.name, f.verdict) for f in report.findings if f.verdict != "does not apply"} == {
        (f"{compiler}: other {what}", "kept")
        for compiler in ("aot_compile", "torch.compile")
        for what in ("values", "sizes")
    }


def test_what_is_not_in_the_context() -> None:
    """`aot_compile` puts on results what eager mode has there."""
    found = broken(hidden, (33,))
    assert set(found) == {"torch.compile: a write"}
    assert all("the result has wrong values, off by 0.667" in why for why in found.values())
