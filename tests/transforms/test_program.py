"""Programs of tensors, and the programs that transforms make of them."""

from __future__ import annotations

from typing import Any

import torch

import subclass_aot as sa
from subclass_aot.transforms.program import Program


def run(rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x, y = values
    return (x * y.sin() * rest[0], y * 2)


def test_gradients_are_asked_for_and_given_one_by_one() -> None:
    program, rest = Program(run, sa.aot_compile, "run"), [torch.tensor(3.0)]
    x, y, tangent = torch.randn(3), torch.randn(3), torch.randn(3)
    (of_x,) = program.gradient((True, False), (True, False))(rest, x, y, tangent)
    torch.testing.assert_close(of_x, tangent * y.sin() * 3)
    (of_y,) = program.gradient((False, True), (False, True))(rest, x, y, tangent)
    torch.testing.assert_close(of_y, tangent * 2)
    assert program.gradient((True, False), (True, False)) is program.gradient((True, False), (True, False))


def test_many_at_once() -> None:
    program, rest = Program(run, sa.aot_compile, "run"), [torch.tensor(3.0)]
    x, y = torch.randn(3, 5), torch.randn(3)
    first, second = program.mapped((1, None), "error")(rest, x, y)
    torch.testing.assert_close(first, x.t() * y.sin() * 3)
    torch.testing.assert_close(second, (y * 2).expand(5, 3))
