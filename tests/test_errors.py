"""Every error is one of the library's, and one of Python's that code which knows nothing of it can catch."""

from __future__ import annotations

import builtins
import inspect
import re

import pytest

from subclass_aot import errors
from subclass_aot.errors import DifferenceError, SubclassAotError
from tests import error_index

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls is not SubclassAotError]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_it_is_one_of_both(cls: type[SubclassAotError]) -> None:
    assert issubclass(cls, SubclassAotError) and cls.__name__.endswith("Error")
    built_in = [base for base in cls.__mro__ if getattr(builtins, base.__name__, None) is base]
    assert built_in[0] is not Exception


def test_a_difference_carries_the_program() -> None:
    error = DifferenceError("it differs", "print(1)")
    assert (str(error), error.program, DifferenceError("it differs").program) == ("it differs", "print(1)", "")


def test_the_index_of_messages_has_those_of_today() -> None:
    """Every class, nothing that no source says any more, and nearly all that one says; `make docs` writes it anew."""
    text = error_index.PAGE.read_text()
    written, now = ({*re.findall(r"^(?:## |- ).*", each, re.MULTILINE)} for each in (text, error_index.page()))
    assert {line for line in written ^ now if line.startswith("## ")} == set()
    assert len(written - now) + len(now - written) <= len(now) / 20, "python -m tests.error_index"
