"""Code that reads values past the dispatcher gets an error that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import errors
from subclass_aot.compile import aot_compile


@pytest.mark.parametrize(
    ("fn", "call"),
    [
        (lambda x: torch.tensor_split(torch.ones(4), x), "torch.tensor_split(torch.ones(4), x)"),
        (lambda x: torch.tensor([x[0], 2]), "torch.tensor([x[0], 2])"),
        (lambda x: x.tolist(), "x.tolist()"),
        (lambda x: x.numpy() + 1, "x.numpy()"),
    ],
)
def test_the_call_and_the_line_are_named(fn: Callable[..., Any], call: str) -> None:
    with pytest.raises(errors.DataDependentError) as raised:
        aot_compile(fn)(torch.tensor([1, 2]))
    message = str(raised.value)
    assert f"`{call}` reads the values" in message
    assert f"{__file__}:{fn.__code__.co_firstlineno}:" in message


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(RuntimeError, match="same reduction dim"):
        aot_compile(lambda x: x @ x)(torch.ones(2, 3))
