"""State inside objects that cannot be walked: arrays, generators of random numbers, files.

A later call does not repeat what a function does to these. So a function that writes an array is refused, and one that
draws a random number or reads a file runs itself. They are compared with what they were. What does not tell where it
is, as an iterator, has a stand-in (`stepped.py`).
"""

from __future__ import annotations

import io
import os
import pickle
import random
from collections.abc import Iterable, Sequence
from typing import Any

from subclass_aot.engine.objects.stepped import NotStepped
from subclass_aot.errors import MutationError, OnlyInEagerModeError

_ARRAY_WRITTEN = """{path}: the function writes into an object of class {kind}, which is no tensor.
  Later calls would not write into it.
  Instead: make it a tensor, as in torch.from_numpy(array), or write into it outside the compiled function."""

_DRAWN = """{path}: the function draws a random number, and not one of torch's.
  {line}Later calls would compute with the same number again.
  Instead: draw it with torch, as in torch.rand(()), or outside the compiled function, and pass it as a tensor."""

_READ = """{path}: the function reads a file, of class {kind}, and each call reads on.
  Instead: read it outside the compiled function, and pass what was read as an argument."""


def state_of(value: Any) -> Any:
    """Returns what an array holds, or where a generator of random numbers or a file is; None if it is none of these.

    Two are compared by `==`. Nothing changes what is returned.
    """
    try:
        if isinstance(value, NotStepped):
            return b"" if value.refusal is None else b"stepped"
        if isinstance(value, io.IOBase):
            return _state_of_file(value)
        if type(value) is random.Random:
            return value.getstate()
        if isinstance(value, random.Random):
            return pickle.dumps(value.getstate())
        if _is_generator_of_numpy(value):
            return pickle.dumps(_numpy_state(value))
        if getattr(type(value), "__hash__", None) is None:  # what has a hash does not change: `bytes`
            with memoryview(value) as view:
                return view.tobytes()
    except (TypeError, ValueError, BufferError, NotImplementedError, OSError):
        pass  # it does not show it
    return None


def refuse_changed(watched: Iterable[tuple[str, object, Any]], line: str = "", elsewhere: Sequence[str] = ()) -> None:
    """Compares with what `state_of` told before.

    Args:
        watched: Where the user finds each object, the object, and its state then.
        line: Where the program draws, if that is known.
        elsewhere: Of which generators of the process it has drawn.

    Raises:
        MutationError: An array was written.
        OnlyInEagerModeError: A random number was drawn, a file was read, or a step of an iterator was asked for.
    """
    drawn: list[str] = []
    for path, value, before in watched:
        now = state_of(value)
        if now == before:
            continue
        if isinstance(value, NotStepped):  # and the program has caught it
            assert value.refusal is not None
            raise value.refusal
        if isinstance(value, io.IOBase):
            if _was_read(before, now):
                raise OnlyInEagerModeError(_READ.format(path=path, kind=type(value).__name__))
            continue
        if not isinstance(value, random.Random) and not _is_generator_of_numpy(value):
            raise MutationError(_ARRAY_WRITTEN.format(path=path, kind=type(value).__name__))
        drawn.append(path)
    drawn += elsewhere
    if drawn:
        line = f"Your line:  {line}\n  " if line else ""
        raise OnlyInEagerModeError(_DRAWN.format(path=drawn[-1], line=line))


def put_back_generators(watched: Iterable[tuple[str, object, Any]]) -> None:
    """Gives generators the states that they had, and has files that were read go on where they were.

    Args:
        watched: As for `refuse_changed`.
    """
    for _, value, before in watched:
        if isinstance(value, NotStepped):
            continue
        if isinstance(value, io.IOBase):
            if _was_read(before, state_of(value)):
                value.seek(_place_in(before))
        elif (isinstance(value, random.Random) or _is_generator_of_numpy(value)) and state_of(value) != before:
            _put_back(value, before)


def _state_of_file(file: Any) -> bytes | None:
    """Returns where a file is, and what it holds; None if nobody reads it, or it does not tell.

    Of one on disk the size stands for what it holds: one that is written as it is traced is a log.
    """
    if file.closed or not file.readable() or not file.seekable():
        return None
    if isinstance(file, io.BytesIO | io.StringIO):
        return pickle.dumps((file.tell(), file.getvalue()))
    return pickle.dumps((file.tell(), os.fstat(file.fileno()).st_size))


def _place_in(state: bytes) -> int:
    """Returns where a file was, by its state then."""
    place: int = pickle.loads(state)[0]
    return place


def _was_read(before: bytes, now: bytes | None) -> bool:
    """Returns whether a file was read: it is elsewhere, and holds the same. One that is iterated over tells nothing."""
    return now is None or now != before and pickle.loads(now)[1] == pickle.loads(before)[1]


def _is_generator_of_numpy(value: object) -> bool:
    return (type(value).__module__ or "").startswith("numpy.random")


def _numpy_state(value: Any) -> Any:
    if hasattr(value, "get_state"):
        return value.get_state()
    return getattr(value, "bit_generator", value).state


def _put_back(value: Any, before: Any) -> None:
    state = pickle.loads(before) if isinstance(before, bytes) else before
    if isinstance(value, random.Random):
        value.setstate(state)
    elif hasattr(value, "set_state"):
        value.set_state(state)
    else:
        getattr(value, "bit_generator", value).state = state
