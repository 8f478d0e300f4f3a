"""Gradients that are differentiated again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import aot_compile
from subclass_aot.errors import DoubleBackwardError
from subclass_aot.testing import difference


def wave(x: Any, y: Any) -> Any:
    return (x * x * y).sin()


def gradients(out: Any, inputs: Any, power: int = 1) -> Any:
    """Gradients of a sum of powers, to be differentiated again."""
    total = sum((o**power).sum() for o in (out if isinstance(out, tuple) else (out,)))
    return torch.autograd.grad(total, inputs, create_graph=True)


def second(args: Any, out: Any) -> Any:
    """First and second derivatives for all arguments that require grad."""
    wanted = [x for x in args if x.requires_grad]
    first = gradients(out, wanted)
    return [*(g.detach() for g in first), *torch.autograd.grad(sum((g * g).sum() for g in first), wanted)]


def test_double_backward_says_how_to_get_it(kind: Any) -> None:
    x = kind(3, 4, grad=True)
    compiled = aot_compile(lambda x: (x * x).sin())
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    expected = kind(3, 4, grad=True)
    (first,) = torch.autograd.grad((expected * expected).sin().sum(), expected)
    assert not difference(first, gradient.detach(), strides=False)
    with pytest.raises(DoubleBackwardError, match="compiled.fn"):
        gradient.sum().backward()


def test_second_derivative_inside(agree: Any, kind: Any) -> None:
    def program(x: Any) -> Any:
        (gradient,) = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
        return gradient * 2

    agree(program, lambda: (kind(3, 4, grad=True),), lambda args, out: torch.autograd.grad(out.sum(), args[0]))


@pytest.mark.inductor("two")
def test_second_derivatives(agree: Any, kind: Any) -> None:
    make = lambda: (kind(3, 4, grad=True), kind(3, 4, grad=True, seed=1))  # noqa: E731
    agree(wave, make, second, double_backward=True)


@pytest.mark.inductor()
def test_second_derivatives_of_dense_tensors(agree: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        return torch.nn.functional.softplus(x @ y), (x.unbind(0)[0] ** 3).unbind(0)

    def later(args: Any, out: Any) -> Any:
        return second(args, (out[0], *out[1]))

    def make() -> tuple[Any, ...]:
        torch.manual_seed(0)
        return torch.rand(3, 4).requires_grad_(), torch.rand(4, 3).requires_grad_()

    agree(program, make, later, double_backward=True)


def test_third_derivatives(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        first = gradients(out, args)
        again = gradients(first, args, power=2)
        return torch.autograd.grad(sum((g * g).sum() for g in again), args)

    agree(wave, lambda: (kind(3, 4, grad=True), kind(3, 4, grad=True, seed=1)), later, double_backward=True)


def test_gradients_of_inputs_on_the_way_to_a_second_derivative(agree: Any, kind: Any) -> None:
    """Second derivatives go on through what made the input, and through what made the gradient."""
    made: dict[int, Any] = {}

    def make() -> tuple[Any, ...]:
        x = kind(3, 4, grad=True)
        middle = x * 2
        made[id(middle)] = x
        return (middle,)

    def later(args: Any, out: Any) -> Any:
        x = made[id(args[0])]
        weight = torch.tensor(2.0, requires_grad=True)
        (first,) = torch.autograd.grad((out * 1).sum() * weight, x, create_graph=True)
        return torch.autograd.grad((first * first).sum(), [x, weight])

    agree(lambda x: (x * x).sin(), make, later, double_backward=True)


def test_second_derivatives_of_only_one_of_several_results(agree: Any, kind: Any) -> None:
    for used in range(3):
        agree(
            lambda x: (x.sin(), x * 3, (x * x).exp()),
            lambda: (kind(3, 4, grad=True),),
            lambda args, out, used=used: second(args, out[used]) if used != 1 else gradients(out[1], args)[0],
            double_backward=True,
        )


@pytest.mark.inductor("two")
def test_hessian_vector_product(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        (gradient,) = gradients(out, args)
        vector = torch.linspace(0, 1, gradient.numel(), dtype=gradient.dtype).view(gradient.shape)
        return torch.autograd.grad((gradient * vector).sum(), args)

    agree(lambda x: (x * x * x).sin(), lambda: (kind(3, 4, grad=True),), later, double_backward=True)


class Critic(torch.nn.Module):
    """Has a wrapper weight, a norm with buffers, dropout, and a keyword."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        a = torch.rand(5, 4, generator=generator, dtype=torch.float64)
        self.weight = torch.nn.Parameter(TwoTensor(a, a.clone()))
        self.norm = torch.nn.BatchNorm1d(5, dtype=torch.float64)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x: Any, *, power: int = 2) -> Any:
        return self.dropout(self.norm(torch.nn.functional.linear(x, self.weight)).tanh() ** power).sum(1)


@pytest.mark.parametrize("training", [True, False])
def test_gradient_penalty(training: bool) -> None:
    """Some steps of a critic whose gradient is to have length one; the mode changes between forward and backward."""
    models = [Critic().train(training) for _ in range(2)]
    calls = [models[0], aot_compile(models[1], double_backward=True)]
    losses: list[list[Any]] = [[], []]
    for model, call, seen in zip(models, calls, losses, strict=True):
        torch.manual_seed(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            x = torch.rand(6, 4, requires_grad=True, dtype=torch.float64)
            score = call(x, power=2)
            model.train(not training)
            (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)
            penalty = ((gradient.norm(dim=1) - 1) ** 2).sum()
            (score.sum() + penalty).backward()
            model.train(training)
            seen.append(penalty.detach())
            optimizer.step()
            optimizer.zero_grad()
            torch.rand(step)
    torch.testing.assert_close(*losses)
    for (name, expected), found in zip(models[0].state_dict().items(), models[1].state_dict().values(), strict=True):
        assert not difference(expected, found), name


def test_second_derivatives_do_not_draw_random_numbers_again(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        torch.rand(5)
        found = second(args, out)
        return [*found, torch.rand(2)]

    def make() -> tuple[Any, ...]:
        torch.manual_seed(3)
        return (kind(3, 4, grad=True),)

    agree(lambda x: torch.nn.functional.dropout(x * x * x, 0.5), make, later, double_backward=True)


def test_second_derivatives_with_an_input_that_is_written(agree: Any, kind: Any) -> None:
    """Without autograd, with it, and in its look: second derivatives see the input as it was."""

    def unseen(x: Any, y: Any) -> Any:
        with torch.no_grad():
            y.mul_(2)
        return (x * x * y).sin()

    agree(unseen, lambda: (kind(3, 4, grad=True), kind(3, 4, seed=1)), second, double_backward=True)

    def seen(x: Any, y: Any) -> Any:
        y.mul_(x)
        return (y * y).sin()

    def later(args: Any, out: Any) -> Any:
        wanted = [args[0], args[1].root]
        first = torch.autograd.grad(out.sum() + (args[1] * args[1]).sum(), wanted, create_graph=True)
        return torch.autograd.grad(sum((g * g).sum() for g in first), wanted)

    agree(seen, lambda: (kind(3, 4, grad=True), kind.non_leaf(3, 4)), later, double_backward=True)

    def given_history(x: Any, y: Any) -> Any:
        y[1:].copy_((x * x * x)[1:])
        return x * 2

    def after(args: Any, out: Any) -> Any:
        return second(args[:1], (out, args[1]))

    agree(given_history, lambda: (kind(3, 4, grad=True), torch.ones(3, 4, dtype=kind(3, 4).dtype)), after,
          double_backward=True)  # fmt: skip

    def turned(x: Any, y: Any) -> Any:
        y.t_()
        return (x * x * y.t()).sin()

    agree(turned, lambda: (kind(3, 4, grad=True), kind(3, 4, seed=1)), second, double_backward=True)


def test_second_derivatives_with_an_input_that_is_written_later(agree: Any, kind: Any) -> None:
    """The first derivative is not concerned, the second is refused as in eager."""

    def later(args: Any, out: Any) -> Any:
        with torch.no_grad():
            args[0].mul_(2)
        return torch.autograd.grad(out.sum(), args)

    agree(lambda x: x * 2, lambda: (kind(3, 4, grad=True),), later, double_backward=True)

    def again(args: Any, out: Any) -> Any:
        with torch.no_grad():
            args[0].mul_(2)
        return second(args, out)

    agree(lambda x: (x * x).sin(), lambda: (kind(3, 4, grad=True),), again, double_backward=True)
