"""State inside objects that cannot be walked: arrays, generators of random numbers, iterators.

A later call does not repeat what a function does to these, so a function that changes one is refused. Arrays and
generators are compared with what they were; an iterator does not tell where it is, so a stand-in takes its place.
"""

from __future__ import annotations

import io
import pickle
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from subclass_aot._stack import user_line
from subclass_aot.errors import MutationError, OnlyInEagerModeError, TraceError

_ARRAY_WRITTEN = """{path}: the function writes into an object of class {kind}, which is no tensor.
  Later calls would not write into it.
  Instead: make it a tensor, as in torch.from_numpy(array), or write into it outside the compiled function."""

_DRAWN = """{path}: the function draws a random number, and not one of torch's.
  {line}Later calls would compute with the same number again.
  Instead: draw it with torch, as in torch.rand(()), or outside the compiled function, and pass it as a tensor."""

_STEPPED = """{path}: the function takes a step of an iterator, of class {kind}.
  Later calls would get what the first one got.
  Your line:  {line}
  Instead: take the step outside the compiled function, and pass what it gives as an argument."""


_OF_PYTHON: random.Random = random.random.__self__  # type: ignore[attr-defined]
"""The generator behind the functions of `random`, whatever stands in their places."""


def state_of(value: Any) -> bytes | None:
    """Returns what an array holds, or where a generator of random numbers is; None if it is neither."""
    try:
        if isinstance(value, random.Random):
            return pickle.dumps(value.getstate())
        if _is_generator_of_numpy(value):
            return pickle.dumps(_numpy_state(value))
        if getattr(type(value), "__hash__", None) is None:  # what has a hash does not change: `bytes`
            with memoryview(value) as view:
                return view.tobytes()
    except (TypeError, ValueError, BufferError, NotImplementedError):
        pass  # it does not show it
    return None


def generators() -> Iterator[tuple[str, Any]]:
    """Yields the generators of random numbers that belong to the process, beside torch's."""
    yield "random", _OF_PYTHON
    # Who draws numbers of numpy has imported it.
    numpy_random = sys.modules.get("numpy.random.mtrand")
    if numpy_random is not None:
        yield "numpy.random", numpy_random._rand


def refuse_changed(watched: Iterable[tuple[str, object, bytes]], line: str = "") -> None:
    """Compares with what `state_of` told before.

    Args:
        watched: Where the user finds each object, the object, and its state then.
        line: Where the program draws, if that is known.

    Raises:
        MutationError: An array was written.
        OnlyInEagerModeError: A random number was drawn.
    """
    drawn = []
    for path, value, before in watched:
        if state_of(value) == before:
            continue
        if not isinstance(value, random.Random) and not _is_generator_of_numpy(value):
            raise MutationError(_ARRAY_WRITTEN.format(path=path, kind=type(value).__name__))
        drawn.append(path)
    if drawn:
        line = f"Your line:  {line}\n  " if line else ""
        raise OnlyInEagerModeError(_DRAWN.format(path=drawn[-1], line=line))


def put_back_generators(watched: Iterable[tuple[str, object, bytes]]) -> None:
    """Gives generators the states that they had.

    Args:
        watched: As for `refuse_changed`.
    """
    for _, value, before in watched:
        if (isinstance(value, random.Random) or _is_generator_of_numpy(value)) and state_of(value) != before:
            _put_back(value, before)


def is_stepped(value: object) -> bool:
    """Returns whether a value is an iterator. Files are iterators over their lines, too, but mostly written."""
    return hasattr(type(value), "__next__") and not isinstance(value, io.IOBase | NotStepped)


class NotStepped:
    """Stands for an iterator while a function is traced, and takes no step.

    Attributes:
        iterator: What it stands for.
    """

    def __init__(self, iterator: Any, path: str) -> None:
        """Takes the place of what stands at `path`."""
        self.iterator = iterator
        self._path = path

    def __iter__(self) -> NotStepped:
        return self

    def __next__(self) -> Any:
        kind = type(self.iterator).__name__
        raise TraceError(_STEPPED.format(path=self._path, kind=kind, line=user_line()))


def _is_generator_of_numpy(value: object) -> bool:
    return (type(value).__module__ or "").startswith("numpy.random")


def _numpy_state(value: Any) -> Any:
    if hasattr(value, "get_state"):
        return value.get_state()
    return getattr(value, "bit_generator", value).state


def _put_back(value: Any, before: bytes) -> None:
    state = pickle.loads(before)
    if isinstance(value, random.Random):
        value.setstate(state)
    elif hasattr(value, "set_state"):
        value.set_state(state)
    else:
        getattr(value, "bit_generator", value).state = state
