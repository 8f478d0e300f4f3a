"""Other native code than what is installed, for one test."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, get_args

import pytest

from subclass_aot.base import hooks
from subclass_aot.base._torch.quantized import DENSE_IS_FAST
from subclass_aot.native import accelerator, put_in_place
from subclass_aot.native.accelerated import Part

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
            runs = module is not None and (not parts or part in parts)
            put_in_place(part, module if runs else None)
            if part in ("kernels", "leaves") and accelerator(part) is not None:
                monkeypatch.setattr(InDispatcher(part), "is_on", runs)


def say_dense_is_fast(monkeypatch: pytest.MonkeyPatch, is_fast: bool = True) -> None:
    """Has products choose their kernels as on a CPU whose dense products are fast, or slow, until the test is over."""
    for dtype in DENSE_IS_FAST:
        monkeypatch.setitem(DENSE_IS_FAST, dtype, is_fast)


class InDispatcher:
    """A part of the accelerator that is in the dispatcher from the start of the process, and stays there.

    Args:
        part: `"kernels"` or `"leaves"`.
    """

    def __init__(self, part: Part) -> None:
        self._switch: Callable[[bool], bool] = getattr(accelerator(part), f"switch_{part}")

    @property
    def is_on(self) -> bool:
        """Whether it serves operators, and does not hand all of them to Python."""
        is_on = self._switch(True)
        self._switch(is_on)
        return is_on

    @is_on.setter
    def is_on(self, value: bool) -> None:
        self._switch(value)
