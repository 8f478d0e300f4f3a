"""Clauses 9, 16, 19 and 43 in two processes, on classes with one mistake each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from subclass_aot.testing import check_subclass
from subclass_aot.testing.contract.processes import CLAUSES, PROGRAMS
from subclass_aot.testing.contract.report import Finding
from tests.testing.contract.classes import OURS
from tests.testing.contract.makers import (
    foreign_two_tensor,
    hash_in_context,
    hashes_text,
    held,
    leaves_rows,
    order_of_set,
)

pytestmark = pytest.mark.long

ONLY = sorted({clause.number for clause in CLAUSES})

MAY_BE = {
    leaves_rows: {"DTensor: rows", "FSDP2: a step"},
    foreign_two_tensor: {"DTensor: rows", "DTensor: local wrappers"},
}
"""What else is broken. Torch's class waits for the last of its inner tensors alone, so it is a race for that one."""


def found(make: Callable[[], Any], **options: Any) -> dict[str, Finding]:
    report = check_subclass(make, only=ONLY, **options)
    return {finding.clause.name: finding for finding in report.findings if finding.clause.name in PROGRAMS}


@pytest.mark.parametrize("name", [name for name in OURS if OURS[name][0].__name__ != "<lambda>"])
def test_our_classes(name: str) -> None:
    make, expected = OURS[name]
    came = found(make, expected={key: why for key, why in expected.items() if key[0] in ONLY})
    assert [str(finding) for finding in came.values() if finding.is_fault] == []
    assert {came[each].verdict for each in PROGRAMS if "DTensor" in each} == {"kept"}


def test_a_right_class() -> None:
    assert [str(finding) for finding in found(held).values() if finding.is_fault] == []


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (order_of_set, "order in two processes", "one process has the names ["),
        (hash_in_context, "context of another process", "is not equal to that of an equal tensor elsewhere"),
        (hashes_text, "stable hash in two processes", "for equal tensors"),
        (leaves_rows, "DTensor: rows", "on rank 0 of 2: full_tensor() has wrong values, off by"),
        (foreign_two_tensor, "FSDP2: a step", "wrong values"),
    ],
)
def test_one_mistake(make: Any, name: str, says: str) -> None:
    came = found(make)
    assert came[name].verdict == "broken" and says in came[name].why
    others = {each for each, finding in came.items() if finding.is_fault and each != name}
    assert others <= MAY_BE.get(make, set())


def test_a_lambda_does_not_apply() -> None:
    came = found(lambda: held())
    assert {finding.verdict for finding in came.values()} == {"does not apply"}
    assert all("give a function of a module as make" in finding.why for finding in came.values())
