"""Functions of Python's on symbolic numbers: `math.sqrt(n)`, `math.log2(n)`, `divmod(n, 2)`.

Python would have the number, and so the trace assume it: a program that divides by `math.sqrt(x.shape[0])` would be
compiled for each size. Torch has these functions for symbols by other names.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack, attributes_put_back
from subclass_aot.subjects.numbers.text import is_of_program

_DOMAINS: dict[str, Callable[[Any], Any]] = {"sqrt": lambda n: n >= 0, "log2": lambda n: n > 0}
"""Where a function has a value; elsewhere Python raises."""

_PLACES: list[tuple[Any, str]] = [
    *((math, name) for name in _torch.symbolic.FUNCTIONS),
    (torch.SymInt, "__divmod__"),
    (torch.SymInt, "__rdivmod__"),
]


@contextmanager
def functions_take_symbols() -> Iterator[None]:
    """Runs the block so that these functions give the program's code symbols for symbols."""
    with PutBack(attributes_put_back(_PLACES)):
        for name, of_symbols in _torch.symbolic.FUNCTIONS.items():
            setattr(math, name, _function(getattr(math, name), of_symbols, _DOMAINS[name]))
        setattr(torch.SymInt, "__divmod__", lambda n, by: (n // by, n % by))  # noqa: B010
        setattr(torch.SymInt, "__rdivmod__", lambda n, of: (of // n, of % n))  # noqa: B010
        yield


def _function(pythons: Callable[..., Any], of_symbols: Callable[[Any], Any], has_value: Callable[[Any], Any]) -> Any:
    def function(*args: Any) -> Any:
        if len(args) != 1 or type(args[0]) not in (torch.SymInt, torch.SymFloat):
            return pythons(*args)
        (n,) = args
        if not is_of_program(sys._getframe(1)) or _torch.wrappers.is_nested_int(n) or not has_value(n):
            return pythons(n)
        return of_symbols(n)

    return function
