"""Reads the variables of functions that run."""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any


def variables_of(frame: FrameType) -> dict[str, Any]:
    """Returns the variables that a frame has now, and lets the frame keep none of them.

    Up to Python 3.12, `f_locals` of a function is a copy, which the frame keeps until it is read again: values would
    outlive their variables. So that copy is emptied, if nobody else has it. Where a debugger reads the function, it may
    be written back, and what is missing would be deleted: there it stays.

    Args:
        frame: The frame of a function, a class body or a module.
    """
    found = frame.f_locals
    variables = dict(found)
    is_copy = type(found) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if is_copy and sys.gettrace() is None and sys.getrefcount(found) == _OF_A_COPY:
        found.clear()
    return variables


_OF_A_COPY = 3
"""The references to a frame's copy that nobody else reads: the frame's, ours, and the argument of `getrefcount`."""
