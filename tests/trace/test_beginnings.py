"""Which inputs must begin in their storages where those of the traced call do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, trace_joint
from subclass_aot.errors import TraceError
from subclass_aot.signature import Beginning

MEMORY = torch.arange(12.0)


def wrapped() -> TwoTensor:
    return TwoTensor(MEMORY[1:5], MEMORY[2:6])


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda x, w: x * 2 + w, []),
        (lambda x, w: x.storage_offset() + x[1:].storage_offset(), [(0, "", 3)]),
        (lambda x, w: x.as_strided((2,), (1,), 4) * w.a.storage_offset(), [(0, "", 3), (1, ".a", 1)]),
        (lambda x, w: x * w.b.as_strided((4,), (1,), 2), [(1, ".b", 2)]),
        (lambda x, w: x * w.storage_offset(), [(1, "", 1)]),
        (lambda x, w: x * w[1:].storage_offset(), [(1, "", 1)]),
        (lambda x, w: x * (w * 2).storage_offset(), [(1, "", 1)]),
        (lambda x, w: (x * 2).storage_offset(), []),
    ],
)
def test_what_was_read(program: Callable[..., Any], expected: list[tuple[int, str, int]]) -> None:
    signature = trace_joint(program, MEMORY[3:7], wrapped()).signature
    assert list(signature.assumptions.beginnings) == [Beginning(*each) for each in expected]


def test_what_is_read_in_backward() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        z.register_hook(lambda gradient: gradient * y.as_strided((4,), (1,), 2))
        return z

    joint = trace_joint(program, torch.ones(4, requires_grad=True), MEMORY[1:7])
    assert joint.signature.assumptions.beginnings == (Beginning(1, "", 1),)
    with pytest.raises(TraceError, match="out of the memory"):
        trace_joint(program, torch.ones(4, requires_grad=True), MEMORY[3:7])


def test_a_tangent_is_no_input() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        z = x * 2
        z.register_hook(lambda gradient: gradient.as_strided((4,), (1,), 0) * 2)
        return z

    joint = trace_joint(program, torch.ones(4, requires_grad=True))
    assert joint.signature.assumptions.beginnings == ()
