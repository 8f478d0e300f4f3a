"""The tests in which `aot_compile` may warn that the function itself ran.

Such a warning says that a program was not compiled. A test that ignores warnings hides it. So each test in which it
comes is in one list, `itself.txt`, and any other fails.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

import subclass_aot.engine.compile as compiling
from subclass_aot.base import _stack

LIST = Path(__file__).with_name("itself.txt")


@functools.cache
def allowed() -> set[str]:
    """Returns the names of the tests in the list: `tests/test_main.py::test_help`, without cases."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


@contextmanager
def watched() -> Iterator[list[str]]:
    """Collects the warnings that the function itself ran, also those that are ignored or expected."""
    seen: list[str] = []

    def noted(message: str, stacklevel: int) -> None:
        if sys._getframe(2).f_globals["__name__"] == compiling.__name__ and "unction itself r" in message:
            seen.append(message)
        warnings.warn(message, stacklevel=stacklevel + 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_stack, "warnings", SimpleNamespace(warn=noted))
        yield seen
