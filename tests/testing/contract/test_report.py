"""What a report counts, says and raises."""

from __future__ import annotations

from typing import Any

import pytest

from subclass_aot.errors import ContractError
from subclass_aot.testing.contract.clause import Clause
from subclass_aot.testing.contract.report import Finding, Report


def finding(severity: Any, verdict: Any, why: str = "") -> Finding:
    return Finding(Clause(22, severity, f"x.{verdict}", "a view aliases", lambda trial: None), verdict, why)


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
    text = str(Report(int, [*NO_FAULTS, *FAULTS]))
    first, *lines = text.splitlines()
    assert first == "int: 1 kept, 2 raises, 1 does not apply, 1 expected, 2 broken, 1 kept, not expected"
    assert lines[0] == "To mend:" and lines[1] == "  broken: clause 22 (S), x.broken: a view aliases"
    assert lines[2].strip() == "off by 1"
    (write,) = [at for at, line in enumerate(lines) if line.startswith("      write: ")]  # once, for all three
    assert lines[write].startswith("      write: int(func(x.inner, *args), ...), of views of inner tensors")
    assert lines[write - 1].strip() == "KeyError: 1" and "kept, not expected" in lines[write + 1]
    assert lines.index("Not offered:") < lines.index("Expected:")
    assert str(Report(int, [NO_FAULTS[0]])) == "int: 1 kept"


def test_markdown() -> None:
    rows = Report(int, NO_FAULTS).markdown().splitlines()
    assert rows[0] == "| clause | what is tried | verdict | why |"
    assert rows[2:4] == ["| 22 | x.kept | kept |  |", "| 22 | x.raises | raises | No rule \\| for it |"]
