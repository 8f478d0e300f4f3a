"""Every error is one of the library's, and one of Python's that code which knows nothing of it can catch."""

from __future__ import annotations

import builtins
import inspect

import pytest

from subclass_aot import errors
from subclass_aot.errors import DifferenceError, SubclassAotError

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls is not SubclassAotError]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_it_is_one_of_both(cls: type[SubclassAotError]) -> None:
    assert issubclass(cls, SubclassAotError) and cls.__name__.endswith("Error")
    built_in = [base for base in cls.__mro__ if getattr(builtins, base.__name__, None) is base]
    assert built_in[0] is not Exception


def test_a_difference_carries_the_program() -> None:
    error = DifferenceError("it differs", "print(1)")
    assert (str(error), error.program, DifferenceError("it differs").program) == ("it differs", "print(1)", "")
