"""`make fuzz` finds what is wrong, says so, and ends as it should."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from subclass_aot.testing import check, fuzz
from subclass_aot.testing.agreement import check_program


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "_PROGRAMS_PER_ROUND", 20)


def test_none_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.fuzz(0, 3) == 0
    assert "20 programs, none wrong (seed 3)" in capsys.readouterr().out


def test_the_seed_tells_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    def drawn(seed: int) -> list[str]:
        found: list[str] = []
        fuzz.fuzz(0, seed, lambda program: found.append(repr(program)))
        return found

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_wrong_compiler(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of one line is left of whatever was drawn."""
    aten = torch.ops.aten

    def cosine(graph: torch.fx.GraphModule, inputs: object) -> object:
        for node in graph.graph.nodes:
            if node.target is aten.sin.default:
                node.target = aten.cos.default
        graph.recompile()
        return graph.forward

    compile_right = check.aot_compile
    monkeypatch.setattr(check, "aot_compile", lambda fn: compile_right(fn, fw_compiler=cosine))
    monkeypatch.setattr(fuzz, "_PROGRAMS_PER_ROUND", 500)
    assert fuzz.fuzz(1, 0, lambda program: check_program(program, fw_compiler=cosine)) == 1
    said = capsys.readouterr()
    assert "A wrong program, after" in said.out and "(seed 0)" in said.out
    assert "v0 = x0.sin()" in said.out and "check_compiled(program, (x0,))" in said.out
    assert "AssertionError: result 0: values" in said.err


def test_a_crash_tells_the_program(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The process that draws programs is another one than the one that tells."""
    started = subprocess.Popen

    def crashing(command: list[str]) -> subprocess.Popen[bytes]:
        note = command[-1]
        program = f"import os; open({note!r}, 'w').write('the program'); os.abort()"
        return started([sys.executable, "-c", program])

    monkeypatch.setattr(subprocess, "Popen", crashing)
    assert fuzz.main(["--minutes", "1", "--seed", "5"]) != 0
    said = capfd.readouterr().out
    assert said.startswith("seed 5, for 1 minutes") and "The process ended with" in said and "the program" in said


def test_two_processes() -> None:
    command = [sys.executable, "-m", "subclass_aot.testing.fuzz", "--minutes", "0", "--processes", "2"]
    done = subprocess.run([*command, "--seed", "7"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "seed 7, for 0 minutes"
    assert done.stdout.count("none wrong") == 2 and "(seed 8)" in done.stdout
