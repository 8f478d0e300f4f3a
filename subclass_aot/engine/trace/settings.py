"""Settings of torch that a program reads while it is traced: they are facts of its calls, of those that read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack, attributes_put_back
from subclass_aot.engine.graph import messages
from subclass_aot.errors import LastingChangeError


@contextmanager
def settings_noted() -> Iterator[dict[str, None]]:
    """Runs a block, and notes which settings the program reads in a trace in it.

    A function that the program has by a name of its own (`from torch import get_num_threads`) is not noticed.

    Yields:
        The settings, as a program reads them: `torch.get_num_threads()`.
    """
    found: dict[str, None] = {}
    with PutBack(attributes_put_back([(_torch.flags, "noted")])):
        _torch.flags.noted = (*_torch.flags.noted, found)
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
