"""Clauses 43 to 45, on classes with one mistake each."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from subclass_aot.base import _torch
from subclass_aot.testing.contract import life
from subclass_aot.testing.contract.trial import DoesNotApply
from tests.testing.contract.classes import OURS, broken, held
from tests.testing.contract.wrong_by_hand import Cycle, OneHook, Unprintable

ONLY = (43, 44, 45)


@pytest.mark.long
@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    assert broken(OURS[name][0], ONLY) == {}


@pytest.mark.parametrize(
    ("cls", "name", "says"),
    [
        (OneHook, "FSDP hooks", "it has ['fsdp_pre_all_gather'], and not the other"),
        (Cycle, "no cycle", "it keeps itself alive"),
        (Unprintable, "repr", "KeyError"),
    ],
)
def test_one_mistake(cls: type, name: str, says: str) -> None:
    assert says in broken(held(cls), ONLY)[name]


def test_the_end_of_a_process() -> None:
    def dies() -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def raises() -> None:
        raise KeyError("it may")

    assert life._status_of_child(dies) == -signal.SIGSEGV
    assert life._status_of_child(raises) == 0


def test_a_process_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "_LONGEST", 0.05)
    with pytest.raises(DoesNotApply, match="did not end"):
        life._status_of_child(signal.pause)


def test_a_class_that_crashes() -> None:
    """Torch's own class: a crash before 2.14 at least, and nothing else."""
    cls = _torch.wrappers.foreign_two_tensor()
    found = broken(lambda: cls(torch.randn(4, 6), torch.randn(4, 6)), (44,))
    assert set(found) <= {"share_memory_ in a child process"}
