"""What is said of a joint graph: what is wrong, where, and what to do."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

import subclass_aot
from subclass_aot.doors.joint import messages

MESSAGES = {name: text for name, text in vars(messages).items() if name.isupper()}
SOURCES = [
    path for path in (Path(subclass_aot.__file__).parent / "doors" / "joint").glob("*.py") if path.name != "messages.py"
]
WORDS = {word for path in SOURCES for word in re.findall(r"\w+", path.read_text())}


@pytest.mark.parametrize("name", MESSAGES)
def test_each_is_used_and_fits_its_lines(name: str) -> None:
    fields = {field for _, field, _, _ in string.Formatter().parse(MESSAGES[name]) if field}
    text = MESSAGES[name].format(**dict.fromkeys(fields, "given"))
    first, *others = text.splitlines()
    assert name in WORDS
    assert all(line.startswith("  ") or name == "DOES_NOT_FIT" for line in others)
    assert not any(len(line) > 120 for line in text.splitlines())
