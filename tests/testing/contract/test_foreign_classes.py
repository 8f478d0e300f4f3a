"""What the documentation says of torch's own class; its other rows need packages that `make test` does not install."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from subclass_aot.testing import check_subclass
from tests.testing.contract.makers import foreign_two_tensor
from tests.torches import TORCH

PAGE = (Path(__file__).parents[3] / "docs" / "foreign_classes.md").read_text()

BROKEN = {"drawn calls", "negative bit", "equal", "data", "share_memory_ in a child process", "FSDP2: a step"}
RACES = {"DTensor: rows", "DTensor: local wrappers"}
"""Torch's class waits for the last of its inner tensors alone: it is right, unless the machine is busy."""
OWED = {"torch.save", "torch.load(mmap=True)", "state_dict"}


@pytest.mark.long
@pytest.mark.skipif(TORCH != (2, 13), reason="the page has what torch 2.13 does")
def test_torch_s_two_tensor() -> None:
    report = check_subclass(foreign_two_tensor)
    assert {f.clause.name: f.verdict for f in report.broken if f.clause.name not in RACES} == {
        **dict.fromkeys(BROKEN, "broken"),
        **dict.fromkeys(OWED, "raises"),
    }
    counts = Counter("kept" if f.clause.name in RACES else f.verdict for f in report.findings)
    row = re.search(r"^\| `TwoTensor` \| (.+?) \|$", PAGE, re.MULTILINE)
    assert row
    owed = len(OWED)
    numbers = [counts["kept"], counts["broken"], owed, counts["raises"] - owed, counts["does not apply"]]
    assert [int(number) for number in row[1].split(" | ")][:-1] == numbers


def test_the_page_has_the_rows_that_the_command_prints() -> None:
    command = Path(__file__).parents[2] / "models" / "more" / "foreign_classes.py"
    names = re.findall(r'^    "(\w+)": ', command.read_text(), re.MULTILINE)
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == names
    others = r"torchao \d+\.\d+\.\d+, optimum-quanto \d+\.\d+\.\d+"
    assert re.search(rf"\d{{4}}-\d\d-\d\d, torch 2\.13\.\d\S*, {others}, Python 3\.11", PAGE)
    assert f"python -m {'.'.join(command.with_suffix('').parts[-4:])}" in PAGE
