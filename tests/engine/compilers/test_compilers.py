"""Compilers by name: those of the library, those of others, and names that there are not."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.engine.compilers import BACKENDS, Backend, resolve
from subclass_aot.errors import SubclassAotError


def program(x: Any, y: Any) -> Any:
    return (x * y).sum()


def test_unknown_name() -> None:
    with pytest.raises(SubclassAotError) as caught:
        aot_compile(program, fw_compiler="inducktor")
    assert "There is no compiler named 'inducktor'.\n  Names:   eager, inductor" in str(caught.value)
    with pytest.raises(SubclassAotError, match="no compiler named ''"):
        aot_compile(program, bw_compiler="")
    assert resolve("eager") is BACKENDS["eager"]


def test_a_compiler_of_others_has_a_name_as_those_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []

    def compile(graph: Any, inputs: list[Any], is_backward: bool) -> Any:
        seen.append((len(inputs), is_backward))
        return BACKENDS["eager"].compile(graph, inputs, is_backward)

    monkeypatch.setitem(BACKENDS, "mine", Backend(compile))
    pair, y = TwoTensor(torch.rand(3), torch.rand(3)).requires_grad_(), torch.rand(3)
    found = aot_compile(program, fw_compiler="mine")(pair, y)
    found.backward()
    assert seen == [(3, False), (3, True)] and found.equal(program(pair.detach(), y))
    assert list(BACKENDS) == ["eager", "inductor", "mine"]


def test_a_backend_is_itself() -> None:
    other = dataclasses.replace(BACKENDS["eager"], fuses=True)
    assert resolve(other) is other


def test_compilers_are_imported_when_one_is_asked_for() -> None:
    """A program that only writes classes, or has a compiler of its own, pays for none."""
    code = """
import sys, torch, subclass_aot as sa
from subclass_aot.engine.compilers import BACKENDS
assert "eager" in BACKENDS and not [name for name in sys.modules if name.startswith("subclass_aot.backends")]
BACKENDS["eager"]
assert "subclass_aot.backends.eager" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
