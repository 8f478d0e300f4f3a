"""Running something in another thread, in the middle of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class _OfLibrary(list[Any]):
    __module__ = "logging"  # lists of libraries are not walked


FOUND = _OfLibrary()
"""What was found, for tests whose programs must not know of it."""


def elsewhere(observe: Callable[[], Any]) -> Any:
    """Runs something in another thread, and waits for it."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(observe())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def noted_elsewhere(observe: Callable[[], Any]) -> None:
    """Runs something in another thread, and notes in `FOUND` what it finds.

    A module holds it then. So it is nothing that has to do with a traced tensor.
    """
    FOUND[:] = [elsewhere(observe)]
