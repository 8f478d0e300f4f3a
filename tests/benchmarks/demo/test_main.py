"""The command line of the demo."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.demo import processes, stages
from benchmarks.demo.__main__ import main


@pytest.mark.parametrize("arguments", [["--epochs", "0"], ["--epochs", "x"], ["train"]])
def test_a_misspelt_command_ends_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sklearn" else object())
    assert main([]) == 1
    assert "the demo needs sklearn; `make demo` installs that" in capsys.readouterr().err


def test_arguments_reach_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[object, ...]] = []
    monkeypatch.setattr(stages, "run", lambda out, epochs: ran.append((out.name, epochs)) or 0)
    monkeypatch.setattr(processes, "run", lambda count: ran.append((count,)) or 1)
    assert main(["--out", "plots", "--epochs", "3"]) == 0
    assert main(["--processes", "2"]) == 1
    assert ran == [("plots", 3), (2,)]
