"""Who asks for a text: the program, or a message."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from subclass_aot.base.asked import asks_for_text, refuse_history
from subclass_aot.engine.aliasing import as_non_leaf
from subclass_aot.errors import OnlyInEagerModeError


class Said:
    """Notes who asks for its text."""

    def __repr__(self) -> str:
        return str([asks_for_text(sys._getframe(1))])

    __str__ = __repr__


def function_of(module: str, body: str) -> Any:
    """A function of some module."""
    names: dict[str, Any] = {"__name__": module}
    exec(f"def ask(*args): {body}", names)
    return names["ask"]


_OWN: dict[str, Any] = {"__name__": "subclass_aot.somewhere"}
exec(compile("def run(function, *args): return function(*args)", "<subclass_aot generated 1>", "exec"), _OWN)
run: Any = _OWN["run"]
"""A function of this library, which runs a program."""


@pytest.mark.parametrize(
    "module, expected",
    [("program", True), ("torch.nn.functional", False), ("pdb", False), ("IPython.core", False)],
)
def test_modules(module: str, expected: bool) -> None:
    assert run(function_of(module, "return str(args[0])"), Said()) == str([expected])


def test_a_text_in_a_text_is_asked_for_by_who_asks_for_the_whole() -> None:
    class Outer:
        def __repr__(self) -> str:
            return "".join([f"{part}" for part in (Said(), Said())])

    assert run(lambda: repr(Outer())) == "[True][True]"
    assert run(function_of("program", "return '%s' % args"), Outer()) == "[True][True]"
    assert run(function_of("torch.nn.functional", "return str(args[0])"), Outer()) == "[False][False]"
    assert run(str, Outer()) == "[False][False]"  # a message of this library
    assert repr(Said()) == "[False]"  # shown by pytest


def test_an_input_with_a_history() -> None:
    x = torch.ones(2, requires_grad=True)
    refuse_history((x * 2).grad_fn)
    with pytest.raises(OnlyInEagerModeError, match="(?s)names the operator that has computed it.*detach"):
        refuse_history(as_non_leaf(x, torch.ones(2)).grad_fn)
