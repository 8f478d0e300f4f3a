"""What takes long says how far it is, to who asks."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile, compile_blocks
from subclass_aot.testing import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def compiler(graph: Any, inputs: Any) -> Any:
    return graph.forward


def test_a_library_is_silent(capsys: Any) -> None:
    progress.tell("something")
    aot_compile(torch.sin, fw_compiler=compiler)(torch.ones(2))
    assert capsys.readouterr().err == ""


def test_compilations_are_shown_to_who_asks(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(progress, "_shown", True)
    x = torch.ones(2, requires_grad=True)
    aot_compile(lambda x: x.sin().sum(), fw_compiler=compiler)(x).backward()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"<lambda>: compiles the {kind} graph of {n} operators" for kind, n in (("forward", 2), ("backward", 3))
    ]
    layers = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(2, 2)) for _ in range(3)))
    compile_blocks(layers, fw_compiler=compiler)(torch.ones(2))
    assert "compiles the forward graph" in capsys.readouterr().err


def test_a_terminal_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with progress.shown_on_a_terminal():
        progress.tell("one")
        progress.tell("two")
    progress.tell("three")
    assert screen.getvalue() == "\r\033[Kone\r\033[Ktwo\r\033[K"
