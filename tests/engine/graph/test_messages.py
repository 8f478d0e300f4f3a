"""What is refused is said in the same way everywhere: what it is, why, and what to write instead."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

import subclass_aot
from subclass_aot.engine.graph import messages

MESSAGES = {name: text for name, text in vars(messages).items() if name.isupper()}
SOURCES = [path for path in Path(subclass_aot.__file__).parent.rglob("*.py") if path.name != "messages.py"]
WORDS = {word for path in SOURCES for word in re.findall(r"\w+", path.read_text())}


def fields_of(text: str) -> set[str]:
    return {field for _, field, _, _ in string.Formatter().parse(text) if field}


@pytest.mark.parametrize("name", MESSAGES)
def test_it_says_what_to_do_instead(name: str) -> None:
    text = MESSAGES[name].format(**dict.fromkeys(fields_of(MESSAGES[name]), "given"))
    first, *others = text.splitlines()
    assert others and all(line.startswith("  ") for line in others), "what is wrong, and below it the rest"
    assert "nstead" in text
    assert not any(len(line) > 120 for line in text.splitlines()) and text.rstrip()[-1] in ".)"


@pytest.mark.parametrize("name", MESSAGES)
def test_it_is_said_somewhere(name: str) -> None:
    assert name in WORDS


def test_no_two_are_the_same() -> None:
    assert len(set(MESSAGES.values())) == len(MESSAGES)
