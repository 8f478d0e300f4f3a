"""Symbolic numbers that a program writes into text, or looks up in a dict: there they are numbers.

Torch would write the symbol, `"s0"`, into a text that outlives the trace. So the program assumes a number, as where it
says `int(n)`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot._stack import is_user_code

_PLAIN: dict[Any, Callable[[Any], Any]] = {torch.SymInt: int, torch.SymFloat: float}
_METHODS: dict[str, Callable[..., Any]] = {"__str__": str, "__format__": format, "__hash__": hash}


@contextmanager
def numbers_are_written_out() -> Iterator[None]:
    """Within the block, `str`, `format` and `hash` of a symbolic number, called by the user's code, are its value's."""
    before = [(cls, name, cls.__dict__.get(name)) for cls in _PLAIN for name in _METHODS]
    for cls, name, _ in before:
        setattr(cls, name, _written_out(cls, name, getattr(cls, name)))
    try:
        yield
    finally:
        for cls, name, method in before:
            if method is None:
                delattr(cls, name)
            else:
                setattr(cls, name, method)


def _written_out(cls: Any, name: str, torchs: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        if not is_user_code(sys._getframe(1).f_code) or _torch.is_nested_int(self):
            return torchs(self, *args)
        return _METHODS[name](_PLAIN[cls](self), *args)

    return method
