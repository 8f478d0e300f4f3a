"""What a call has at hand when its gradient is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import functional_call, grad, vmap

import subclass_aot as sa
from subclass_aot.transforms.bound import Bound
from subclass_aot.transforms.program import Program
from tests.transforms.test_calls import MANY, W, X, same
from tests.transforms.test_program import run


def test_backward_is_compiled_when_it_is_asked_for() -> None:
    program, rest = Program(run, sa.aot_compile, "run"), [torch.tensor(3.0)]
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    first, _ = Bound(program, rest)(x, y)
    assert first.requires_grad and not program._derived
    first.sum().backward()
    torch.testing.assert_close(x.grad, y.sin() * 3)
    assert program._derived


def test_parameters_that_were_put_in_are_those_of_backward() -> None:
    """Backward runs when the module has its own again."""
    model = torch.nn.Linear(4, 4).requires_grad_(False)
    compiled = sa.aot_compile(model)

    class Holds(torch.nn.Module):
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.inner, self.functions = model, (function,)

        def forward(self, x: torch.Tensor) -> Any:
            return self.functions[0](x).sin().sum()

    others = {"inner.weight": torch.randn(4, 4), "inner.bias": torch.randn(4)}
    holders = [Holds(f) for f in (model, compiled, compiled)]
    found = [grad(lambda x, h=h: functional_call(h, others, (x,)))(X) for h in holders]
    same(found[0], found[1])
    same(found[0], found[2])


@pytest.mark.parametrize("make", [lambda: torch.eye(4), lambda: sa.Int8Weight.from_float(torch.eye(4))])
@pytest.mark.parametrize("is_linear", [True, False])
def test_a_write_before_backward_is_refused_as_in_eager_mode(is_linear: bool, make: Callable[[], Any]) -> None:
    weight = make()

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight if is_linear else (x @ weight).sin()).sum()

    for function in (f, sa.aot_compile(f)):
        many = MANY.clone().requires_grad_()
        total = vmap(function)(many).sum()
        weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            total.backward()


def test_a_write_into_what_backward_does_not_read() -> None:
    bias = torch.ones(4)
    compiled = sa.aot_compile(lambda x: (x @ W + bias).sum())
    many = MANY.clone().requires_grad_()
    total = vmap(compiled)(many).sum()
    bias.mul_(2)
    total.backward()
    same(many.grad, W.sum(1).expand(5, 3, 4))
