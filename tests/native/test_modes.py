"""The modes of torch, read in C++: what the function in Python says, and the same tuple where nothing changed."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad

from subclass_aot.engine.facts import modes


@contextlib.contextmanager
def _default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _deterministic(**options: bool) -> Iterator[None]:
    before = torch.get_deterministic_debug_mode()
    torch.use_deterministic_algorithms(True, **options)
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


@contextlib.contextmanager
def _not_filled() -> Iterator[None]:
    settings: Any = torch.utils.deterministic
    before = settings.fill_uninitialized_memory
    settings.fill_uninitialized_memory = not before
    try:
        yield
    finally:
        settings.fill_uninitialized_memory = before


class Passing(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


CHANGES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference": torch.inference_mode,
    "default dtype": _default_dtype,
    "deterministic": _deterministic,
    "warn only": lambda: _deterministic(warn_only=True),
    "not filled": _not_filled,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast of another dtype": lambda: torch.autocast("cpu", torch.float16),
    "autocast, not enabled": lambda: torch.autocast("cpu", enabled=False),
    "default device": lambda: torch.device("meta"),
    "function mode": Passing,
    "forward mode": forward_ad.dual_level,
}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.sampled_from(sorted(CHANGES)), max_size=4, unique=True))
def test_as_in_python(names: list[str], built: ModuleType) -> None:
    read = built.Modes(modes._global_state)
    assert read() == modes._global_state()
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(CHANGES[name]())
            assert read() == modes._global_state()
    assert read() == modes._global_state()


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_inside_of_transforms(built: ModuleType) -> None:
    read, seen = built.Modes(modes._global_state), []

    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.append((read(), modes._global_state()))
        return x.sum()

    read()
    torch.func.grad(fn)(torch.ones(2))
    torch.func.vmap(fn)(torch.ones(2, 2))
    torch.func.jvp(fn, (torch.ones(2),), (torch.ones(2),))
    assert len(seen) == 3 and all(native == python and native[-1] is True for native, python in seen)


def test_the_same_tuple_where_nothing_changed(built: ModuleType) -> None:
    calls: list[int] = []

    def twin() -> tuple[object, ...]:
        calls.append(1)
        return modes._global_state()

    read = built.Modes(twin)
    first = read()
    with torch.no_grad():
        other = read()
    assert read() is first and first != other and len(calls) == 2
    with Passing():
        assert read() is not read() and len(calls) == 4


def test_each_thread_has_its_own(built: ModuleType) -> None:
    read, found = built.Modes(modes._global_state), {}

    def work(name: str, mode: Any) -> None:
        with mode():
            found[name] = {read()[:2] for _ in range(1000)}

    threads = [
        threading.Thread(target=work, args=pair)
        for pair in [("a", torch.no_grad), ("b", torch.enable_grad), ("c", torch.inference_mode)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"a": {(False, False)}, "b": {(True, False)}, "c": {(False, True)}}


def test_errors(built: ModuleType) -> None:
    def fail() -> tuple[object, ...]:
        raise ZeroDivisionError("in the twin")

    read = built.Modes(fail)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="in the twin"):
            read()
    with pytest.raises(TypeError):
        built.Modes()
    del read
    gc.collect()
