"""Symbolic numbers that a program writes into text, or looks up in a dict: there they are numbers.

Torch would write the symbol, `"s0"`, into a text that outlives the trace. So the program assumes a number, as where it
says `int(n)`.

As a key it has no hash at first, as torch has it: who keeps what was computed for sizes (`functools.lru_cache`) often
goes without, where a size cannot be a key. Where that is an error, the trace begins again, and the key is the number.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import is_own, is_user_code
from subclass_aot.base.put_back import PutBack, attributes_put_back
from subclass_aot.base.shown_type import NO_PROGRAM


class Hashes:
    """Whether symbolic numbers have hashes, or a use of one is an error.

    Args:
        by_value: Whether they have those of their values.

    Attributes:
        refused: Whether one was read in vain.
    """

    def __init__(self, by_value: bool) -> None:
        self.by_value = by_value
        self.refused = False

    @contextmanager
    def used(self) -> Iterator[None]:
        """Runs the block with them."""
        with PutBack(partial(_hashes.set, _hashes.get())):
            _hashes.set(self)
            yield


_hashes: ContextVar[Hashes | None] = ContextVar("hashes", default=None)

PLAIN: dict[Any, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
"""The class of the number that a symbol of each class stands for."""

_METHODS: dict[str, Callable[..., Any]] = {
    "__repr__": repr, "__str__": str, "__format__": format, "__hash__": hash, "__eq__": operator.eq,
}  # fmt: skip
_PLACES = [(cls, name) for cls in PLAIN for name in _METHODS if name != "__eq__" or cls is torch.SymBool]
"""What is replaced: a condition that is a key is compared, too, which torch cannot do with symbols."""


@contextmanager
def numbers_are_written_out() -> Iterator[None]:
    """Runs the block so that texts and hashes of a symbolic number are those of its value in the user's code."""
    with PutBack(attributes_put_back(_PLACES)):
        for cls, name in _PLACES:
            setattr(cls, name, _written_out(cls, name, getattr(cls, name)))
        yield


def _written_out(cls: type, name: str, torchs: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        hashes, frame = _hashes.get(), sys._getframe(1)
        is_read_here = name == "__hash__" and hashes is not None and hashes.by_value and _reads_keys(frame)
        is_read_here = is_read_here and _torch.symbolic.has_example(self)  # what data decides may not be known yet
        if not (is_read_here or is_of_program(frame)) or _torch.wrappers.is_nested_int(self):
            return torchs(self, *args)
        if name == "__hash__" and hashes is not None and not hashes.by_value:
            hashes.refused = True
            raise TypeError("unhashable: a size that is a symbol")
        return _METHODS[name](PLAIN[cls](self), *args)

    return method


def _reads_keys(frame: FrameType) -> bool:
    """Returns whether code of this library reads keys that a program made. Its own tables hold no symbols."""
    return is_own(frame) and str(frame.f_globals.get("__name__")).startswith(_READING_KEYS)


_READING_KEYS = ("subclass_aot.engine.outcome.", "subclass_aot.engine.tables.")


def plain(value: object) -> Any:
    """Returns the value of a symbol, which the trace then assumes, and anything else as it is."""
    return PLAIN[type(value)](value) if type(value) in PLAIN else value


def is_of_program(frame: FrameType) -> bool:
    """Returns whether a frame runs code of the program; what was generated or typed in is of the module it runs in."""
    file = frame.f_code.co_filename
    if not file.startswith("<"):
        return is_user_code(frame.f_code)
    return not is_own(frame) and str(frame.f_globals.get("__name__")).partition(".")[0] not in NO_PROGRAM
