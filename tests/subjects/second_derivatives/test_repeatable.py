"""What a second call would not repeat is refused by name, before anything has changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.errors import DoubleBackwardError


def refusal(program: Any, *args: Any, **options: Any) -> str:
    before = [x.detach().clone() for x in args]
    with pytest.raises(DoubleBackwardError) as info:
        aot_compile(program, double_backward=True, **options)(*args)
    assert all(x.equal(y) for x, y in zip(args, before, strict=True)), "nothing has changed"
    return str(info.value)


def test_memory_that_is_shared_and_written() -> None:
    base = torch.rand(4)

    def program(x: Any, y: Any, w: Any) -> Any:
        x.mul_(2)
        return (w * y).sin()

    text = refusal(program, base[:3], base[1:], torch.rand(3, requires_grad=True))
    assert "memory that several inputs share: args[0] and args[1]" in text and "x.clone()" in text


class WritesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, buffer: Any) -> Any:
        ctx.buffer = buffer
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.buffer.add_(1)
        return gradient * 2, None


def test_a_write_in_backward() -> None:
    text = refusal(WritesInBackward.apply, torch.rand(3, requires_grad=True), torch.rand(3))
    assert "writes into args[1] while gradients are computed" in text


class DrawsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * torch.rand_like(gradient)


def test_random_numbers_that_would_be_others() -> None:
    x = torch.rand(3, requires_grad=True)
    dropout = torch.nn.functional.dropout
    assert "drawn in backward" in refusal(DrawsInBackward.apply, x)
    text = refusal(lambda x: dropout(x), x, fw_compiler="inductor")
    assert "draws random numbers (aten.rand" in text and 'fw_compiler="eager"' in text


@pytest.mark.parametrize("draws", [False, True])
def test_draws_in_forward_are_made_again(draws: bool) -> None:
    """Each call begins with the state of the generator that the first one had, and leaves it as one call does."""
    x = torch.rand(100, requires_grad=True)
    compiled = aot_compile(lambda x: torch.nn.functional.dropout(x**3, training=draws), double_backward=True)
    torch.manual_seed(3)
    y = compiled(x)
    after = torch.get_rng_state()
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.equal(torch.get_rng_state(), after)
    kept = (y != 0) * (2 if draws else 1)
    torch.testing.assert_close(gradient, 3 * x**2 * kept)
