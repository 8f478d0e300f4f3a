"""Second derivatives of compiled functions: an error or the right number, never a wrong one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.engine.runtime.once import once_differentiable
from subclass_aot.errors import DoubleBackwardError


def cube(x: Any) -> Any:
    return x**3


@pytest.mark.parametrize("tangent_requires_grad", [False, True])
def test_differentiating_a_gradient_is_an_error(tangent_requires_grad: bool) -> None:
    x, compiled = torch.tensor([2.0], requires_grad=True), aot_compile(cube)
    tangent = torch.ones(1, requires_grad=tangent_requires_grad)
    (gradient,) = torch.autograd.grad(compiled(x), x, tangent, create_graph=True)
    assert gradient.item() == 12 and gradient.requires_grad
    for attempt in (lambda: gradient.backward(), lambda: (gradient * x).sum().backward()):
        with pytest.raises(DoubleBackwardError, match="that a compiled backward computed is differentiated") as caught:
            attempt()
        assert "compiled.fn instead of compiled" in str(caught.value)


@pytest.mark.parametrize("second", ["jvp", "hvp", "vhp", "hessian", "grad"])
@pytest.mark.parametrize("leaf", [True, False])
def test_a_gradient_that_may_be_unused_is_an_error_too(second: str, leaf: bool) -> None:
    """Where autograd finds no way, it gives zeros for a gradient that may be unused."""
    compiled, x, v = aot_compile(lambda x: (x**3).sum()), torch.rand(3), torch.rand(3)

    def function(x: torch.Tensor) -> Any:
        return compiled(x if leaf else x * 2)

    with pytest.raises(DoubleBackwardError):
        if second == "grad":
            x.requires_grad_()
            (gradient,) = torch.autograd.grad(function(x), x, create_graph=True)
            torch.autograd.grad(gradient.sum(), x, allow_unused=True)
        elif second == "hessian":
            torch.autograd.functional.hessian(function, x)
        else:
            getattr(torch.autograd.functional, second)(function, x, v if second != "jvp" else (v,))


def test_wrappers_too() -> None:
    x = TwoTensor(torch.ones(2), torch.ones(2)).requires_grad_()
    (gradient,) = torch.autograd.grad(aot_compile(cube)(x).sum(), x, create_graph=True)
    assert type(gradient) is TwoTensor and gradient.requires_grad
    with pytest.raises(DoubleBackwardError):
        gradient.sum().backward()


def test_a_gradient_that_is_only_used_needs_no_graph() -> None:
    x, compiled = torch.tensor([2.0], requires_grad=True), aot_compile(cube)
    (gradient,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    assert (gradient + 1).item() == 13
    compiled(x).backward()
    assert x.grad is not None and not x.grad.requires_grad


def test_the_ways_out_that_the_error_names() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    compiled = aot_compile(cube)
    (gradient,) = torch.autograd.grad(compiled.fn(x), x, create_graph=True)
    assert torch.autograd.grad(gradient, x)[0].item() == 12

    def inside(x: torch.Tensor) -> Any:
        return torch.autograd.grad(cube(x).sum(), x, create_graph=True)[0]

    assert torch.autograd.grad(aot_compile(inside)(x), x)[0].item() == 12


def test_a_backward_without_gradients() -> None:
    backward = once_differentiable(lambda ctx, tangent: (None, None))
    assert backward(None, torch.ones(1)) == (None, None)
    with torch.no_grad():
        assert backward(None, torch.ones(1)) == (None, None)
