"""A search finds what is wrong, makes it small and says so; equal seeds draw equal programs."""

from __future__ import annotations

import re

import pytest
import torch

from subclass_aot.testing import check
from tests.fuzz import Program, check_program, search


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_PROGRAMS_PER_ROUND", 20)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a signal while Python frees an object
def test_none_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert search.fuzz(0, 3) == 0
    assert "20 programs, none wrong (seed 3)" in capsys.readouterr().out


def test_the_seed_tells_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    def drawn(seed: int) -> list[str]:
        found: list[str] = []
        search.fuzz(0, seed, lambda program: found.append(repr(program)))
        return found

    assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.long
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
    monkeypatch.setattr(search, "_PROGRAMS_PER_ROUND", 500)

    def check_one(drawn: search.Drawn) -> None:
        if isinstance(drawn, Program):
            check_program(drawn, fw_compiler=cosine)

    assert search.fuzz(1, 0, check_one) == 1
    said = capsys.readouterr()
    assert "A wrong program, after" in said.out and "(seed 0)" in said.out
    line = r"v0 = x0\.sin\(\)|x0\.sin_\(\)|torch\.sin\(x0, out=x0\)"  # whichever was drawn
    assert re.search(rf"def program\(x0\):\n +({line})\n +return", said.out)
    assert "check_compiled(program, (x0,))" in said.out
    assert "AssertionError: result 0: values" in said.err
