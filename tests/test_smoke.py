"""The import and a training in environments that need no installation; `make test-smoke` tries more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.smoke.rows import ROWS, Row, run

HERE = [row for row in ROWS if (row.python, row.torch) == ("3.11", "2.13.0") and not row.read_only]
IN_SHORT = {"HOME cannot be read", "a user without a name or HOME", "without a C compiler"}


@pytest.mark.every_case
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=() if row.name in IN_SHORT else pytest.mark.long)
        for row in HERE
        if row.name != "without numpy"
    ],
)
def test_what_works_elsewhere(row: Row) -> None:
    if row.cannot_run:
        pytest.skip(row.cannot_run)
    ran = run(row, Path(sys.executable), ("--short",))
    assert not ran.wrong and ran.what == [
        "import",
        "show_config",
        "training with dropout",
    ]


def test_what_does_not_go_well_is_said() -> None:
    row = Row("warnings of everybody are errors", flags=("-c", "import sys; print('ok import'); sys.exit('not so')"))
    ran = run(row, Path(sys.executable))
    assert ran.what == ["import"] and ran.wrong == "not so"
