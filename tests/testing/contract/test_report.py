"""What a report counts, says and raises."""

from __future__ import annotations

from typing import Any

import pytest

from subclass_aot.errors import ContractError
from subclass_aot.testing.contract.blame import Method
from subclass_aot.testing.contract.causes import Cause
from subclass_aot.testing.contract.clause import Clause
from subclass_aot.testing.contract.finding import Finding
from subclass_aot.testing.contract.report import Report


def finding(severity: Any, verdict: Any, why: str = "") -> Finding:
    return Finding(Clause(22, severity, f"x.{verdict}", "a view aliases", lambda trial: None), verdict, why)


RULE = Method("aten.mul", "rule", "/a/b.py", 3)
FAULTS = [
    finding("S", "broken", "off by 1"),
    finding("P", "broken", "slow"),
    finding("C", "raises", "KeyError: 1"),
    finding("S", "kept, not expected", "take it out"),
]
NO_FAULTS = [
    finding("S", "kept"),
    finding("S", "raises", "No rule | for it"),
    finding("C", "does not apply", "no reading"),
    finding("C", "expected", "it rounds"),
]


def test_what_is_to_mend() -> None:
    report = Report(int, [*NO_FAULTS, *FAULTS])
    assert report.broken == FAULTS and report.not_offered == [NO_FAULTS[1]]
    with pytest.raises(ContractError) as caught:
        report.raise_if_broken()
    assert str(caught.value) == str(report)
    assert Report(int, NO_FAULTS).broken == []
    Report(int, NO_FAULTS).raise_if_broken()


def test_what_it_says() -> None:
    text = str(Report(int, [*NO_FAULTS, *FAULTS], [Cause((RULE,), (FAULTS[0], FAULTS[2])), Cause((), (FAULTS[1],))]))
    lines = text.splitlines()
    assert lines[0] == "int: the rule for aten.mul (b.py:3): off by 1"
    assert lines[1].startswith(
        "      write: in the rule for aten.mul (b.py:3), views of each inner tensor, in int(...)"
    )
    assert lines[2] == "  broken: clause 22 (S), x.broken: a view aliases"
    assert lines[4] == "  and 1 more: 22 x.raises"
    assert lines[5] == "int: clause 22: slow"
    (last,) = [line for line in lines if line.startswith("int: kept, not expected")]
    counts = "int: 1 kept, 2 raises, 1 does not apply, 1 expected, 2 broken, 1 kept, not expected"
    assert lines.index(last) < lines.index(counts) < lines.index("Not offered:") < lines.index("Expected:")
    assert str(Report(int, [NO_FAULTS[0]])) == "int: 1 kept"


def test_methods_that_do_not_agree() -> None:
    both = [Method(name, "method", "/a/b.py", 3) for name in ("__tensor_unflatten__", "__tensor_flatten__")]
    first = str(Report(int, FAULTS[:1], [Cause(tuple(both), (FAULTS[0],))])).splitlines()[0]
    assert first == "int: `__tensor_unflatten__` (b.py:3) and `__tensor_flatten__` (b.py:3) do not agree: off by 1"


def test_markdown() -> None:
    rows = Report(int, NO_FAULTS).markdown().splitlines()
    assert rows[0] == "| clause | what is tried | verdict | why |"
    assert rows[2:4] == ["| 22 | x.kept | kept |  |", "| 22 | x.raises | raises | No rule \\| for it |"]
