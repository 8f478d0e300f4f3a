"""The demo in two processes, shortened; and that it finds a difference, and processes that fail."""

from __future__ import annotations

import math
import sys
import time

import pytest

from benchmarks.demo import processes
from benchmarks.demo.processes import Step, equal, table


def test_two_processes_learn_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert processes.run(2, steps=2) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[1].split()[:3] == ["step", "one", "process"]
    for line in lines[2:4]:
        gathered, floats = (float(word) for word in line.split()[4::2])
        assert 2 * gathered < floats < 4 * gathered
    assert lines[-1].startswith("equal: no difference is over 1e-05; 2.8 times fewer bytes")


def test_another_loss_is_not_equal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(processes, "in_processes", lambda count, steps: [(4.0, 1000, 3000)])
    monkeypatch.setattr(processes, "in_one_process", lambda steps, size: [4.1])
    assert processes.run(2, steps=1) == 1
    assert "NOT EQUAL: a difference is over 1e-05" in capsys.readouterr().out


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_no_number_is_equal_to_nothing(loss: float) -> None:
    assert not equal([Step(loss, loss, 1, 1)]) and not equal([])
    assert "NOT EQUAL" in table([Step(loss, loss, 1, 1)], 2)


def fails(rank: int, *rest: object) -> None:
    """One rank fails, and the other would wait for it for ever."""
    if rank:
        sys.exit(3)
    time.sleep(600)


def test_processes_that_fail_are_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes.ranks, "run_rank", fails)
    assert processes.run(2, steps=1) == 1
    assert "the processes ended with [-9, 3]" in capsys.readouterr().out
