"""Compiled autograd around a trace, and around the backward of what was compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, _dynamo
from torch._dynamo import compiled_autograd

from subclass_aot import aot_compile
from tests.doors.dynamo.checks import rand
from tests.native.places import run_natively


def program(x: Tensor) -> Tensor:
    return (x * 2).tanh()


def test_a_trace_while_it_is_on() -> None:
    """It would take the backward of what is traced for one to compile."""
    mine = rand(3, grad=True)
    other = mine.detach().requires_grad_()
    with compiled_autograd._enable(lambda gm: pytest.fail("the backward of a trace")):
        found = aot_compile(program)(mine)
    found.sum().backward()
    program(other).sum().backward()
    torch.testing.assert_close(mine.grad, other.grad)


@pytest.mark.parametrize("in_python", [False, True])
def test_what_is_compiled_already_is_refused_by_name(in_python: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_python:
        run_natively(monkeypatch, None)

    def step(x: Tensor) -> None:
        program(x).sum().backward()

    with _dynamo.config.patch(compiled_autograd=True):
        compiled: Any = torch.compile(step, backend="subclass_aot")
        with pytest.raises(NotImplementedError, match="is compiled already.\n  Instead: "):
            compiled(rand(3, grad=True))
    x = rand(3, grad=True)
    torch.compile(step, backend="subclass_aot")(x)
    assert x.grad is not None
