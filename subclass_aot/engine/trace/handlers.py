"""Handlers of signals that come while a function is traced: they run when nothing is traced.

Note [Signals in a trace]
~~~~~~~~~~~~~~~~~~~~~~~~~
A handler runs between any two instructions, and in a trace it would find tensors without data: a checkpoint that it
saves would have none, and what it draws, counts or changes would become a part of what is traced. So a handler that is
written in Python waits: the trace is abandoned, which puts everything back, the handler runs, and the call is traced
anew. What it raises ends the call, as ever.

A timer that rings all the time must not keep a trace from its end, and an alarm must end a trace that hangs. So a
trace that was abandoned after some time is not abandoned again before it has taken twice as long. What comes earlier
waits until it ends. So does what comes while an object is finalized or garbage collected, where Python drops what is
raised.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine.trace.threads import is_tracing

_T = TypeVar("_T")
_Handler = Callable[[int, FrameType | None], Any]

_SIGNALS = tuple(map(int, signal.valid_signals()))
_of_signal: Any = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
"""What `signal.getsignal` calls, which then looks for an enum, at ten times the time."""


class Abandoned(BaseException):
    """A handler has run, and the call is traced anew. No `except Exception` of the program catches it."""


class _OfThread(threading.local):
    """What a thread has to do with handlers: they run in the main thread alone.

    Attributes:
        waiting: What has them wait by now.
        count: How many have come while a call was compiled, and have run.
    """

    def __init__(self) -> None:
        self.waiting: _Waiting | None = None
        self.count = 0
        self.is_main = threading.current_thread() is threading.main_thread()


_of_thread = _OfThread()


def handlers_run() -> int:
    """Returns how many handlers have run in this thread while calls were compiled: they may have changed objects."""
    return _of_thread.count


class _Waiting:
    """Has handlers wait while something is traced for a call; at other times they run when they come.

    Args:
        handlers: Those that are written in Python, by their signals.
    """

    def __init__(self, handlers: dict[int, _Handler]) -> None:
        self._came: list[tuple[_Handler, int, FrameType | None]] = []
        self._is_abandoned = False
        self._begun = self._patience = 0.0
        self._own = handlers
        self._replaced = {number: _Waits(handler) for number, handler in handlers.items()}

    def begin(self) -> None:
        """Has handlers wait."""
        for number, handler in self._replaced.items():
            handler.waiting = self
            signal.signal(number, handler)

    def end(self) -> None:
        """Puts handlers back, but for those that the program has replaced."""
        _of_thread.waiting = None
        for number, handler in self._own.items():
            if _of_signal(number) is self._replaced[number]:
                signal.signal(number, handler)

    def came(self, handler: _Handler, number: int, frame: FrameType | None) -> None:
        """Runs a handler, or has it wait and abandons the trace."""
        if not is_tracing():
            _run(handler, number, frame)
            return
        self._came.append((handler, number, frame))
        passed = time.monotonic() - self._begun
        if passed >= self._patience and not _is_in_callback(frame):
            self._patience = 2 * passed
            self._is_abandoned = True
            raise Abandoned

    def trace(self, trace: Callable[[], _T]) -> _T:
        """Runs a trace, and then the handlers of signals that came meanwhile.

        Args:
            trace: Traces, and has put everything back when it ends.

        Raises:
            Abandoned: It has to run again.
        """
        self._begun, self._is_abandoned = time.monotonic(), False
        failed: BaseException | None = None
        try:
            result = trace()
        except BaseException as error:
            if not self._came:
                raise
            failed = error
        try:
            while self._came:
                _run(*self._came.pop(0))
            if self._is_abandoned:
                raise Abandoned
            if failed is not None:
                raise failed
        finally:
            del failed
        return result


class _Waits(partial[Any]):
    """A handler that waits; what it is made of is found as that of any partial function."""

    waiting: _Waiting

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        self.waiting.came(self.func, *args, **kwargs)


def _is_in_callback(frame: FrameType | None) -> bool:
    """Returns whether what a frame raises is printed and dropped: it is in a finalizer or in a callback of `gc`."""
    callbacks = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    while frame is not None and frame.f_globals.get("__name__") != __name__:
        if frame.f_code.co_name == "__del__" or frame.f_code in callbacks:
            return True
        frame = frame.f_back
    return False


def _run(handler: _Handler, number: int, frame: FrameType | None) -> None:
    _of_thread.count += 1
    with _torch.plain_subclasses.classes_see("as outside"):
        handler(number, frame)


@contextmanager
def handlers_wait() -> Iterator[None]:
    """Runs the block, in which a call is compiled, so that handlers of signals wait while something is traced."""
    handlers = {}
    if _of_thread.is_main and _of_thread.waiting is None and not is_tracing():
        handlers = {n: h for n in _SIGNALS if callable(h := _of_signal(n)) and h is not signal.default_int_handler}
    if not handlers:
        yield
        return
    waiting = _Waiting(handlers)
    with PutBack(waiting.end):
        _of_thread.waiting = waiting
        waiting.begin()
        yield


def with_handlers_waiting(trace: Callable[[], _T]) -> _T:
    """Runs a trace, and then the handlers of signals that came meanwhile.

    Args:
        trace: Traces, and has put everything back when it ends.

    Raises:
        Abandoned: It has to run again.
    """
    waiting = _of_thread.waiting
    return trace() if waiting is None or is_tracing() else waiting.trace(trace)


def traced_until_the_end(trace: Callable[[], _T]) -> _T:
    """Runs a trace again and again until it is not abandoned.

    Args:
        trace: Traces, and has put everything back when it ends.
    """
    with handlers_wait():
        while True:
            try:
                return with_handlers_waiting(trace)
            except Abandoned:
                if is_tracing():
                    raise
