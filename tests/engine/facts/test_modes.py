"""The modes of torch that are part of a signature."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from subclass_aot.engine.facts import global_state
from subclass_aot.engine.facts.modes import MODES


@contextmanager
def set_to(setter: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    setter(value)
    try:
        yield
    finally:
        setter(before)


@contextmanager
def deterministic(fills: bool) -> Iterator[None]:
    import torch.utils.deterministic as settings

    before = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    settings.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        settings.fill_uninitialized_memory = before  # type: ignore[attr-defined]


class Mode(TorchFunctionMode):
    pass


CHANGES: dict[str, tuple[Callable[[], AbstractContextManager[Any]], set[str]]] = {
    "no grad": (torch.no_grad, {"grad mode"}),
    "inference": (torch.inference_mode, {"grad mode", "inference mode"}),
    "dtype": (lambda: set_to(torch.set_default_dtype, torch.float64, torch.float32), {"default dtype"}),
    "deterministic": (lambda: deterministic(False), {"deterministic debug mode"}),
    "deterministic, and fills": (
        lambda: deterministic(True), {"deterministic debug mode", "deterministic fill of uninitialized memory"}
    ),
    "autocast": (lambda: torch.autocast("cpu", torch.bfloat16), {"autocast"}),
    "autocast that is off": (lambda: torch.autocast("cpu", torch.bfloat16, enabled=False), set()),
    "device": (lambda: torch.device("meta"), {"default device and function modes"}),
    "function mode": (Mode, {"default device and function modes"}),
    "forward mode": (torch.autograd.forward_ad.dual_level, {MODES[-1]}),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_which_modes_differ_in_a_block(name: str) -> None:
    make, changed = CHANGES[name]
    before = global_state()
    with make():
        now = global_state()
    assert {mode for mode, a, b in zip(MODES, before, now, strict=True) if a != b} == changed
    assert global_state() == before


def test_two_dtypes_of_autocast_are_two_modes() -> None:
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            found.append(global_state())
    assert found[0] != found[1]


def test_transforms_are_seen() -> None:
    before, seen = global_state(), []
    torch.func.vmap(lambda x: seen.append(global_state()) or x)(torch.ones(2))  # type: ignore[func-returns-value]
    assert seen[0][-1] != before[-1]
