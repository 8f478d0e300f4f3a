"""One line on stderr that says what is being done, for what takes long.

The commands of `python -m subclass_aot` show it on a terminal. Else nothing is shown unless `SUBCLASS_AOT_PROGRESS=1`
is in the environment: then compilations by inductor and other compilers are, too. `0` turns it off everywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from subclass_aot.base.logs import announced_to
from subclass_aot.base.put_back import PutBack

_ASKED = os.environ.get("SUBCLASS_AOT_PROGRESS", "")

_shown = _ASKED == "1"


@contextmanager
def shown_on_a_terminal() -> Iterator[None]:
    """Shows progress while the block runs, if stderr is a terminal."""
    with PutBack(partial(_end, _shown)):
        _set(_shown or (_ASKED != "0" and sys.stderr.isatty()))
        yield


def _end(before: bool) -> None:
    tell("")
    _set(before)


def _set(is_shown: bool) -> None:
    global _shown
    _shown = is_shown


def is_shown() -> bool:
    """Returns whether somebody reads it."""
    return _shown


def tell(what: str) -> None:
    """Shows what is being done: on a terminal in place of the line before.

    Args:
        what: It; "" where it is done.
    """
    if _shown and sys.stderr.isatty():
        print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)
    elif _shown and what:
        print(what, file=sys.stderr, flush=True)


announced_to.append(tell)
