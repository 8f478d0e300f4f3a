"""Other native code than what is installed, for one test."""

from __future__ import annotations

from types import ModuleType
from typing import Any, get_args

import pytest

from subclass_aot import hooks
from subclass_aot._native import put_in_place
from subclass_aot._native.accelerated import Part

NAMES = [name for name, value in vars(hooks).items() if not name.startswith("_") and name in hooks.__annotations__]


def run_natively(monkeypatch: pytest.MonkeyPatch, module: ModuleType | Any, *parts: Part) -> None:
    """Has parts of the accelerator run in C++, and the others in Python, until the test is over.

    Args:
        monkeypatch: What puts back what was there.
        module: The accelerator; None has all run in Python.
        parts: The parts; all, if none is named.
    """
    for name in NAMES:
        monkeypatch.setattr(hooks, name, getattr(hooks, name))
    for part in get_args(Part):
        if part != "exact":
            put_in_place(part, module if not parts or part in parts else None)
