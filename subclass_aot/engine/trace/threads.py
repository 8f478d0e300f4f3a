"""The thread that traces."""

from __future__ import annotations

import threading


def is_tracing() -> bool:
    """Returns whether this thread is in the middle of a trace."""
    return getattr(_this_thread, "is_tracing", False)


def now_tracing(value: bool) -> None:
    """Notes whether this thread is in the middle of a trace."""
    _this_thread.is_tracing = value


_this_thread = threading.local()
one_at_a_time = threading.RLock()
"""Held while a call is traced and compiled. Modules have other tensors for parameters while they are traced, so two
traces of one module must not meet; and what one thread compiles, another that waits for it need not."""
