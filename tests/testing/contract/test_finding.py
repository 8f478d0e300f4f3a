"""What must be mended, and what is said of one clause."""

from __future__ import annotations

from typing import Any

import pytest

from subclass_aot.testing.contract.clause import Clause
from subclass_aot.testing.contract.finding import Finding


@pytest.mark.parametrize(
    ("severity", "verdict", "is_broken", "is_fault"),
    [
        ("S", "broken", True, True),
        ("S", "raises", False, False),
        ("C", "raises", True, True),
        ("P", "broken", True, True),
        ("C", "kept, not expected", False, True),
        ("C", "expected", False, False),
        ("S", "kept", False, False),
        ("S", "does not apply", False, False),
    ],
)
def test_what_is_to_mend(severity: Any, verdict: Any, is_broken: bool, is_fault: bool) -> None:
    finding = Finding(Clause(1, severity, "a", "b is c", lambda trial: None), verdict, "off by 1")
    assert (finding.is_broken, finding.is_fault) == (is_broken, is_fault)
    assert str(finding) == f"{verdict}: clause 1 ({severity}), a: b is c\n      off by 1"
