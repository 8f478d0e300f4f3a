"""Operators that have no result, and fail: a compiled function fails where eager does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import aot_compile


class FailsBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        torch._assert_async((ctx.saved_tensors[0] > 0).all(), "not positive")
        return gradient * 2


def asserted(x: torch.Tensor) -> torch.Tensor:
    torch._assert_async((x > 0).all(), "not positive")
    return x * 2


def after_a_write(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.sub_(1)
    torch._assert_async((y > 0).all(), "not positive")
    return y * 2


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", [asserted, after_a_write])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_in_forward(program: Any, backend: str, requires_grad: bool) -> None:
    compiled = aot_compile(program, fw_compiler=backend)
    good, bad = (torch.full((3,), value).requires_grad_(requires_grad) for value in (2.0, -2.0))
    torch.testing.assert_close(compiled(good), program(good))
    for run in (program, compiled):
        with pytest.raises(RuntimeError, match="not positive"):
            run(bad)
    assert len(compiled.recompiles) == 0


def test_on_a_path_that_values_decide() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return asserted(x) if x.sum() > 0 else x * 3

    compiled = aot_compile(program)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        torch.testing.assert_close(compiled(x), program(x))
    with pytest.raises(RuntimeError, match="not positive"):
        compiled(torch.tensor([-1.0, 5.0, 5.0]))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_in_backward(backend: str) -> None:
    compiled = aot_compile(FailsBackward.apply, fw_compiler=backend)
    for run in (FailsBackward.apply, compiled):
        x = torch.ones(3, requires_grad=True)
        run(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2.0] * 3
        loss = run(-torch.ones(3, requires_grad=True)).sum()
        with pytest.raises(RuntimeError, match="not positive"):
            loss.backward()
