"""Attributes that a program reads of tensors that do not have them: a later call may bring a tensor that has one.

Note [Absent attributes]
~~~~~~~~~~~~~~~~~~~~~~~~
`getattr(weight, "is_first_microbatch", True)` reads that there is none, and what was read is a fact of the call. Python
calls `__getattr__` for names that are missing, and for no others. Wrapper classes have that method while a function is
traced, and not otherwise: Dynamo refuses attributes of classes that do. A guard compares the names that were missed. Of
a tensor that has attributes it compares all; and of one whose class is not ours, which does not tell what was missed,
it compares that there are none. So it does of all, where a function of the call has `__dict__`, `vars` or `dir` in it,
which read all names at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from subclass_aot.base._stack import is_own
from subclass_aot.base.put_back import PutBack, attributes_put_back


class _Noted(threading.local):
    """The notes of one thread."""

    found: list[tuple[object, str]] | None = None


_noted = _Noted()
_classes: list[type] = []
_lock = threading.Lock()
_blocks: set[object] = set()


def note_missing_of(cls: type) -> None:
    """Gives a class, in each block of `missing_names`, a `__getattr__` that notes what is missing."""
    _classes.append(cls)


def _watch(block: object, is_entered: bool) -> None:
    """Enters or leaves a block. Threads may be in several at a time."""
    with _lock:
        (_blocks.add if is_entered else _blocks.discard)(block)
        for cls in _classes:
            if _blocks and "__getattr__" not in vars(cls):
                cls.__getattr__ = noting_getattr  # type: ignore[attr-defined]
            elif not _blocks and "__getattr__" in vars(cls):
                del cls.__getattr__  # type: ignore[attr-defined]


def noting_getattr(self: object, name: str) -> Any:
    """Notes that there is no such attribute: that is a fact of the call. See Note [Absent attributes]."""
    note_missing(self, name)
    return object.__getattribute__(self, name)  # raises what it raised before


@contextmanager
def missing_names(tensors: Sequence[object]) -> Iterator[list[tuple[object, str]]]:
    """Runs the block, and notes the names that a program reads of tensors and that are not there, each with the
    tensor.

    Args:
        tensors: Those of which it is wanted.
    """
    found: list[tuple[object, str]] = []
    with PutBack(attributes_put_back([(_noted, "found")])), ExitStack() as stack:
        if any(issubclass(type(tensor), cls) for tensor in tensors for cls in _classes):
            block = object()
            stack.enter_context(PutBack(partial(_watch, block, False)))
            _watch(block, True)
        _noted.found = found
        yield found


def note_missing(tensor: object, name: str) -> None:
    """Notes that a program read a name of a tensor which does not have it. Called by `__getattr__` of its class."""
    if _noted.found is None or name.startswith("__"):
        return
    frame = sys._getframe(2)
    of_torch = str(frame.f_globals.get("__name__")).partition(".")[0] == "torch"
    if not is_own(frame) and not (of_torch and name.startswith("_")):  # torch reads marks of its own
        _noted.found.append((tensor, name))
