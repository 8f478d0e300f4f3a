"""Ranges of symbolic numbers: `for i in range(0, n, 64)`, of which the trace assumes how many steps there are, not `n`.

A range that is kept is no such one, since it has its ends, too: `range(0, 64, 64)` is equal to `range(0, 8, 64)`, and
reads otherwise.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch

from subclass_aot.base import _torch


def numbers_in_range(*args: object, **kwargs: object) -> Iterable[Any]:
    """Returns the numbers that `range` gives, some of them symbols."""
    given: Any = args
    if kwargs or len(args) not in (2, 3) or not any(map(_is_symbol, args)) or not all(map(_is_whole, args)):
        return range(*given, **kwargs)
    start, stop, step = given if len(args) == 3 else (*given, 1)
    if step == 0:
        return range(0, 0, 0)  # which raises
    count = operator.index((stop - start + step + (-1 if step > 0 else 1)) // step)
    return [start + i * step for i in range(count)]


def _is_symbol(number: object) -> bool:
    is_size = type(number) is torch.SymInt and not _torch.wrappers.is_nested_int(number)
    return is_size and _torch.symbolic.has_example(number)


def _is_whole(number: object) -> bool:
    return _is_symbol(number) or type(number) is int
