"""Which thread traces, and which one waits."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot import trace_joint
from subclass_aot.engine.trace import is_tracing, one_at_a_time


def said_in(program: Callable[[torch.Tensor], Any]) -> Any:
    """What a function that gives no tensor returned while it was traced."""
    (said,) = trace_joint(program, torch.ones(3)).signature.outcome.literals
    return said


def from_another_thread(ask: Callable[[], bool]) -> bool:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result(20)


def test_a_thread_is_tracing_while_its_own_trace_runs() -> None:
    def program(x: torch.Tensor) -> Any:
        before = is_tracing()
        trace_joint(lambda y: y * 2, torch.ones(2))
        return f"{before}, {is_tracing()}, elsewhere {from_another_thread(is_tracing)}"

    assert said_in(program) == "True, True, elsewhere False" and not is_tracing()


def test_it_is_not_after_a_trace_that_failed() -> None:
    with pytest.raises(ZeroDivisionError):
        trace_joint(lambda x: x * (1 // 0), torch.ones(3))
    assert not is_tracing()


def test_another_thread_waits_until_a_trace_is_over() -> None:
    def gets_its_turn() -> bool:
        found = one_at_a_time.acquire(blocking=False)
        if found:
            one_at_a_time.release()
        return found

    assert said_in(lambda x: from_another_thread(gets_its_turn)) is False and from_another_thread(gets_its_turn)


def test_backward_in_a_trace_runs_in_the_thread_of_the_trace() -> None:
    """Autograd has a thread for each GPU, in which a model has its real tensors."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * (2 if torch._C._is_multithreading_enabled() else 3)

    x = torch.ones(3, requires_grad=True)
    assert sa.aot_compile(program)(x).tolist() == [3.0] * 3
    with sa.meta("cuda"):
        assert not torch._C._is_multithreading_enabled()
    assert torch._C._is_multithreading_enabled()
