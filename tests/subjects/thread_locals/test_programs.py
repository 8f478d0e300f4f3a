"""Programs that read and write what a thread has for itself, compared with eager mode."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa


def fresh() -> Any:
    state = threading.local()
    state.scale, state.last = 2.0, None
    return state


def reads(state: Any, x: Any) -> Any:
    return x * state.scale


def puts_a_tensor(state: Any, x: Any) -> Any:
    state.last = x * 3
    return x + 1


def adds_and_removes(state: Any, x: Any) -> Any:
    state.more = x.shape[0]
    del state.last
    return x * 2


def asks(state: Any, x: Any) -> Any:
    return x * getattr(state, "more", 5.0)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {f.__name__: f for f in (reads, puts_a_tensor, adds_and_removes, asks)}


def ran(function: Callable[[Any, Any], Any], held: bool) -> list[object]:
    """Results and contents of four calls, of an object that is passed, or that the function holds."""
    state, found = fresh(), []
    if held:
        outer = function
        call: Any = lambda x: outer(state, x)  # noqa: E731
        call = sa.aot_compile(call) if function in COMPILED else call
    for scale in (2.0, 2.0, 3.0, torch.full((2,), 4.0)):
        state.scale, state.last = scale, None
        x = torch.arange(1.0, 3.0)
        y = call(x) if held else function(state, x)
        contents = {k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in sorted(vars(state).items())}
        found.append((y.tolist(), contents))
    return found


COMPILED: set[Any] = set()


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_as_in_eager_mode(name: str) -> None:
    assert ran(sa.aot_compile(PROGRAMS[name]), held=False) == ran(PROGRAMS[name], held=False)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_one_that_the_function_holds(name: str) -> None:
    def own(state: Any, x: Any) -> Any:
        return PROGRAMS[name](state, x)

    COMPILED.add(own)
    assert ran(own, held=True) == ran(PROGRAMS[name], held=True)


def test_each_thread_has_its_own() -> None:
    state, found = fresh(), []
    compiled = sa.aot_compile(lambda x: x * state.scale)
    assert compiled(torch.ones(1)).item() == 2.0

    def work() -> None:
        state.scale = 3.0
        found.append(compiled(torch.ones(1)).item())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [3.0] and compiled(torch.ones(1)).item() == 2.0


def test_a_trace_that_fails_leaves_nothing_there() -> None:
    state = fresh()

    def fails(x: Any) -> Any:
        state.last = x * 2
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sa.aot_compile(fails)(torch.ones(2))
    assert type(state.last) in (type(None), torch.Tensor)
