"""Handlers of signals wait while something is traced, and run then."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch

from subclass_aot import trace_joint
from subclass_aot.engine.trace import handlers, is_tracing
from subclass_aot.engine.trace.handlers import handlers_run, handlers_wait
from subclass_aot.engine.trace.threads import now_tracing


@pytest.fixture
def seen() -> Iterator[list[Any]]:
    found: list[Any] = []

    def note(number: int, frame: FrameType | None) -> None:
        found.append((is_tracing(), frame is not None))

    before = signal.signal(signal.SIGUSR1, note)
    yield found
    signal.signal(signal.SIGUSR1, before)


def test_a_handler_runs_when_the_trace_is_over_which_begins_anew(seen: list[Any]) -> None:
    ran: list[int] = []
    before = handlers_run()

    def program(x: Any) -> Any:
        ran.append(1)
        if not seen:
            signal.raise_signal(signal.SIGUSR1)
        return x * 2

    joint = trace_joint(program, torch.ones(3))
    assert seen == [(False, True)] and handlers_run() == before + 1 and "mul" in joint.graph_module.code


def test_outside_of_a_trace_it_runs_at_once(seen: list[Any]) -> None:
    with handlers_wait():
        signal.raise_signal(signal.SIGUSR1)
        assert seen == [(False, True)]


def test_handlers_are_put_back(seen: list[Any]) -> None:
    mine = signal.getsignal(signal.SIGUSR1)
    for fails in (False, True):
        try:
            with handlers_wait():
                assert signal.getsignal(signal.SIGUSR1) is not mine
                assert 1 // (not fails)
        except ZeroDivisionError:
            pass
        assert signal.getsignal(signal.SIGUSR1) is mine


def test_what_is_short_is_not_abandoned_twice(seen: list[Any]) -> None:
    def trace() -> str:
        now_tracing(True)
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            now_tracing(False)
        return "traced"

    with handlers_wait():
        with pytest.raises(handlers.Abandoned):
            handlers.with_handlers_waiting(trace)
        handlers._of_thread.waiting._patience = 60
        assert handlers.with_handlers_waiting(trace) == "traced" and len(seen) == 2


def test_an_interruption_from_the_keyboard_does_not_wait() -> None:
    def program(x: Any) -> Any:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trace_joint(program, torch.ones(3))


def test_other_threads_have_no_handlers(seen: list[Any]) -> None:
    mine, found = signal.getsignal(signal.SIGUSR1), []

    def wait(check: Callable[[], Any]) -> None:
        with handlers_wait():
            found.append(check())

    thread = threading.Thread(target=wait, args=(lambda: signal.getsignal(signal.SIGUSR1),))
    thread.start()
    thread.join()
    assert found == [mine]


@pytest.mark.parametrize("place", ["finalizer", "collector"])
def test_what_comes_where_an_error_is_dropped_waits_until_the_trace_ends(seen: list[Any], place: str) -> None:
    sent: list[int] = []

    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGUSR1)
            for _ in range(3):
                pass  # here Python calls the handler, at the latest

    def collected(phase: str, info: dict[str, int]) -> None:
        if place == "collector" and not sent and is_tracing():  # the collector comes by itself, too
            sent.append(1)
            signal.raise_signal(signal.SIGUSR1)
            for _ in range(3):
                pass

    def program(x: Any) -> Any:
        if place == "finalizer":
            Finalized()
        else:
            gc.collect()
        return x * 2

    gc.callbacks.append(collected)
    try:
        joint = trace_joint(program, torch.ones(3))  # an error that is dropped is a warning, which fails a test
    finally:
        gc.callbacks.remove(collected)
    assert seen == [(False, True)] and "mul" in joint.graph_module.code
