"""What is older than a call, and what it makes."""

from __future__ import annotations

import gc
import types
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.engine.outcome import OlderObjects, older_objects

WHOLE_HEAP = True
"""Whether the collector is asked is what is tested."""


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_older_than_a_block(frozen: bool) -> None:
    """The user may have told the collector to leave objects alone; that stays so."""
    old = types.SimpleNamespace()
    if frozen:
        gc.freeze()
    try:
        with OlderObjects() as older:
            new = types.SimpleNamespace()
            assert old in older and new not in older
        assert (gc.get_freeze_count() > 0) is frozen
    finally:
        gc.unfreeze()


def test_the_collector_is_asked_again_once_all_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts what it leaves alone one by one, in each first call of a process that has frozen its heap."""
    asked: list[int] = []
    count = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: asked.append(1) or count())
    monkeypatch.setattr(older_objects.OlderObjects, "users_are_left_alone", False)
    gc.freeze()
    try:
        for _ in range(3):
            with OlderObjects():
                pass
        assert len(asked) == 1
    finally:
        gc.unfreeze()
    monkeypatch.setattr(older_objects, "_MANY", 0)
    for _ in range(2):
        with OlderObjects() as older:
            assert asked in older
    assert not older_objects.OlderObjects.users_are_left_alone and count() == 0


def test_an_error_leaves_the_collector_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError), OlderObjects():
        raise ZeroDivisionError
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("frozen", [False, True])
def test_an_object_without_tensors_in_the_result(frozen: bool) -> None:
    """An older one stays the same object; one that the function makes is made at each call."""
    old = types.SimpleNamespace(n=1)
    registry = {"old": old}

    def program(x: torch.Tensor) -> Any:
        return x, registry["old"], types.SimpleNamespace(n=2)

    if frozen:
        gc.freeze()
    try:
        compiled = aot_compile(program)
        results = [compiled(torch.ones(2)) for _ in range(2)]
    finally:
        gc.unfreeze()
    assert all(kept is old for _, kept, _ in results)
    assert results[0][2] == results[1][2] and results[0][2] is not results[1][2]
