"""Inputs that begin to require grad in the function: results get gradients, and the input has it, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.testing import check_compiled
from tests.models.checks import same as assert_same


def product(a: Any, b: Any) -> Any:
    a.requires_grad_()
    return a * b


def not_what_was_before(a: Any, b: Any) -> Any:
    before, view = a * b, a[:2]
    a.requires_grad_()
    return before, view, a[2:], a * b


def itself(a: Any, b: Any) -> Any:
    a.requires_grad = True
    return a, a.sin()


def gradient_inside(a: Any, b: Any) -> Any:
    a.requires_grad_()
    return torch.autograd.grad((a * a * b).sum(), a)[0]


def backward_inside(a: Any, b: Any) -> Any:
    a.requires_grad_()
    (a * a * b).sum().backward()
    return a.grad


def writes_another(a: Any, b: Any) -> Any:
    a.requires_grad_()
    c = b * 1
    c[:2].mul_(a[:2])
    return c


INPUTS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "dense": lambda: (torch.rand(4), torch.rand(4)),
    "wrapper": lambda: (TwoTensor(torch.rand(4), torch.rand(4)), torch.rand(4)),
    "with another": lambda: (torch.rand(4), torch.rand(4, requires_grad=True)),
    "parameter": lambda: (nn.Parameter(torch.rand(4), requires_grad=False), torch.rand(4)),
}
PROGRAMS = [product, not_what_was_before, itself, gradient_inside, backward_inside, writes_another]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("given", INPUTS)
def test_as_in_eager_mode(program: Any, given: str) -> None:
    if given == "wrapper" and program is writes_another:
        pytest.skip("this class has no rule for a write of it into a dense tensor, in eager mode either")
    check_compiled(program, INPUTS[given](), tries=0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_in_other_modes(mode: Any) -> None:
    with mode():
        check_compiled(product, INPUTS["dense"](), tries=0)


def test_autograd_sees_nothing_in_inference_mode() -> None:
    def program(a: Any, b: Any) -> Any:
        with torch.enable_grad():
            return product(a, b)

    with torch.inference_mode():
        check_compiled(program, INPUTS["dense"](), tries=0)


def test_a_parameter_that_a_module_thaws() -> None:
    class Thaws(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2).requires_grad_(False)

        def forward(self, x: torch.Tensor) -> Any:
            self.linear.weight.requires_grad_()
            return self.linear(x)

    model = Thaws()
    compiled = aot_compile(model)
    for calls in (1, 2):
        compiled(torch.ones(1, 3)).sum().backward()
        assert torch.equal(model.linear.weight.grad, torch.full((2, 3), float(calls)))
        assert model.linear.bias.grad is None
    assert len(compiled.recompiles) == 1 and "requires_grad now" in compiled.recompiles[0]


def positive(a: Any, b: Any) -> Any:
    a.requires_grad_()
    return a * b * 2 if b.sum() > 0 else a * b


def found(a: Any, b: Any) -> Any:
    a.requires_grad_()
    return (a * b)[b > 0]


def counted(a: Any, b: Any) -> Any:
    count = int((b > 0).sum())
    a.requires_grad_()
    return a[:count] * 2


def switched_by_value(a: Any, b: Any) -> Any:
    if b.sum() > 0:
        a.requires_grad_()
    return a * b


def two_of_them(a: Any, b: Any) -> Any:
    a.requires_grad_()
    return a * b.requires_grad_() if b.detach().sum() > 0 else a


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("program", [positive, found, counted, switched_by_value, two_of_them])
def test_programs_that_read_values(program: Any, given: str, in_parts: bool) -> None:
    compiled = aot_compile(program, fw_compiler=(lambda graph, inputs: graph) if in_parts else "eager")
    for sign in (1, -1, 1):
        ours, eager = ([*INPUTS[given]()] for _ in range(2))
        for a, b in zip(ours, eager, strict=True):
            with torch.no_grad():
                a.copy_(b * sign)
                b.copy_(b * sign)
        results = [function(*arguments) for function, arguments in ((compiled, ours), (program, eager))]
        for result in results:
            if result.requires_grad:
                result.sum().backward()
        assert_same(results[0].detach(), results[1].detach())
        for a, b in zip(ours, eager, strict=True):
            assert a.requires_grad == b.requires_grad
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                assert_same(a.grad, b.grad)


def test_a_call_that_begins_again_leaves_no_trace() -> None:
    """The second call runs what was compiled for the first until the check fails, and another program then."""
    ours = torch.full((3,), -1.0)
    compiled = aot_compile(switched_by_value)
    compiled(torch.ones(3), torch.ones(3))
    assert not compiled(ours, -torch.ones(3)).requires_grad and not ours.requires_grad
    compiled(ours, torch.ones(3)).sum().backward()
    assert torch.equal(ours.grad, torch.ones(3))


def test_an_error_of_a_kernel_leaves_no_trace() -> None:
    def program(a: Any, places: Any) -> Any:
        a.requires_grad_()
        return a[places]

    compiled = aot_compile(program)
    compiled(torch.ones(3), torch.tensor([1]))
    given = torch.ones(3)
    with pytest.raises(IndexError):
        compiled(given, torch.tensor([7]))
    assert not given.requires_grad
