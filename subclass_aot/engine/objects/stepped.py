"""Iterators, and what else gives something else each time it is asked: queues, pipes, loaders of data.

None of them tells where it is, and a step cannot be taken back. So while a function is traced, a stand-in is in the
place of each, which takes no step: the function itself runs then, and takes its steps.
"""

from __future__ import annotations

import io
import sys
from typing import Any, NoReturn

from subclass_aot.base._stack import user_line
from subclass_aot.errors import OnlyInEagerModeError

_STEPPED = """{path}: the function takes a step of an iterator, or what comes next, of class {kind}.
  Each call takes steps of its own.
  Your line:  {line}
  Instead: take the step outside the compiled function, and pass what it gives as an argument."""

_QUEUES = frozenset({"queue", "_queue", "multiprocessing.queues", "tqdm.std", "tqdm.asyncio", "tqdm.notebook"})
"""Modules of classes of queues, and of bars around iterators."""

_VIEWS: tuple[type, ...] = type({}.keys()), type({}.values()), type({}.items())
"""Classes of views of a dict, which do not tell of which one."""


def stand_in_for(value: object, path: str) -> NotStepped | None:
    """Returns what a traced function sees in place of an iterator or the like; None for all else.

    Args:
        value: What stands at a path, and is not walked.
        path: The path.
    """
    if isinstance(value, NotStepped):
        return None
    if isinstance(value, io.IOBase):  # which is watched, if it tells where it is
        return NotStepped(value, path) if _is_stream(value) else None
    cls = type(value)
    if hasattr(cls, "__next__") or cls.__module__ in _QUEUES:
        return NotStepped(value, path)
    return _NotIterated(value, path) if cls in _VIEWS or _is_loader(value) else None


class NotStepped:
    """Stands for an iterator while a function is traced, and takes no step.

    Attributes:
        iterator: What it stands for.
        refusal: What was raised at the first step that it was asked for.
    """

    def __init__(self, iterator: Any, path: str) -> None:
        """Takes the place of what stands at `path`."""
        self.iterator = iterator
        self.refusal: OnlyInEagerModeError | None = None
        self._path = path

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # `isinstance` reads it
        return type(self.iterator)

    def __iter__(self) -> NotStepped:
        return self

    def __next__(self) -> Any:
        self._refuse()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.iterator, name)
        if callable(found):  # `send`, `read` and `get` are such
            self._refuse()
        return found

    def _refuse(self) -> NoReturn:
        kind = type(self.iterator).__name__
        self.refusal = OnlyInEagerModeError(_STEPPED.format(path=self._path, kind=kind, line=user_line()))
        raise self.refusal


class _NotIterated(NotStepped):
    """Stands for a view of a dict, or for a loader of data, and does not show what is in it."""

    def __iter__(self) -> NotStepped:
        self._refuse()

    def __reversed__(self) -> NotStepped:
        self._refuse()

    def __contains__(self, value: object) -> bool:
        self._refuse()

    def __len__(self) -> int:
        if type(self.iterator) in _VIEWS:
            self._refuse()
        return len(self.iterator)


def _is_stream(file: io.IOBase) -> bool:
    """Returns whether a file is read and does not tell where it is: a pipe, or one that is iterated over."""
    if file.closed or not file.readable():
        return False
    try:
        file.tell()
    except OSError:
        return not file.writable() or file.seekable()  # else it is a terminal
    return False


def _is_loader(value: object) -> bool:
    """Returns whether a value loads data by torch's loader. Who has one has imported that."""
    loaders = sys.modules.get("torch.utils.data.dataloader")
    return loaders is not None and isinstance(value, loaders.DataLoader)
