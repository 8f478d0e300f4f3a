"""`make fuzz` says what it draws and what crashed, and ends as it should."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fuzz.__main__ import main


def test_a_crash_tells_the_program(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The process that draws programs is another one than the one that tells."""
    started = subprocess.Popen

    def crashing(command: list[str]) -> subprocess.Popen[bytes]:
        note = command[-1]
        program = f"import os; open({note!r}, 'w').write('the program'); os.abort()"
        return started([sys.executable, "-c", program])

    monkeypatch.setattr(subprocess, "Popen", crashing)
    assert main(["--minutes", "1", "--seed", "5"]) != 0
    said = capfd.readouterr().out
    assert said.startswith("seed 5, for 1 minutes") and "The process ended with" in said and "the program" in said


@pytest.mark.long
def test_two_processes() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", "0", "--processes", "2"]
    done = subprocess.run([*command, "--seed", "7"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "seed 7, for 0 minutes"
    assert done.stdout.count("none wrong") == 2 and "(seed 8)" in done.stdout
