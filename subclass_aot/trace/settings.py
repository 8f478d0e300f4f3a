"""Settings of torch that a program reads while it is traced: they are facts of its calls, of those that read them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from subclass_aot import _torch
from subclass_aot.errors import LastingChangeError
from subclass_aot.graph import messages
from subclass_aot.put_back import PutBack


@contextmanager
def settings_noted() -> Iterator[dict[str, None]]:
    """Runs a block, and notes which settings the program reads in it, in this thread.

    A function that the program has by a name of its own (`from torch import get_num_threads`) is not noticed.

    Yields:
        The settings, as a program reads them: `torch.get_num_threads()`.
    """
    found: dict[str, None] = {}
    thread = threading.get_ident()

    def note(setting: str) -> None:
        if threading.get_ident() == thread:
            found[setting] = None

    put_back: list[object] = []
    with PutBack(lambda: [each() for each in put_back]):  # type: ignore[operator]
        put_back.append(_torch.flags.replaced(note))
        yield found


@contextmanager
def settings_stay() -> Iterator[None]:
    """Runs a block, after which settings of torch are to be what they were.

    Raises:
        LastingChangeError: One is not.
    """
    before = _torch.flags.left()
    yield
    changed = [name for name, value in _torch.flags.left().items() if value != before[name]]
    if changed:
        raise LastingChangeError(messages.SETTING_LEFT.format(setting=", ".join(changed)))
