"""What a program returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import Int8Weight, WrapperTensor, aot_compile
from subclass_aot.testing import difference

SCALE_PER_ROW = "one scale for each row cannot follow a view of 12 elements: see Int8Weight below"


@pytest.mark.inductor("two")
def test_written_input_and_its_inner_tensor_is_returned(agree: Any, kind: Any) -> None:
    def program(x: Any) -> Any:
        x.mul_(2)
        return kind.inner(x)

    def later(args: Any, out: Any) -> Any:
        assert out is kind.inner(args[0])
        out.add_(1)
        return [leaf.clone() for leaf in kind.leaves(args[0])]

    agree(program, lambda: (kind(3, 4),), later)


def test_wrapper_around_an_inner_tensor_of_an_input(agree: Any, kind: Any) -> None:
    def program(x: Any) -> Any:
        x.mul_(2)
        return kind.around(kind.inner(x), like=x), kind.inner(x)[1:]

    agree(program, lambda: (kind(3, 4),))


@pytest.mark.inductor("two")
@pytest.mark.unfit(affine=SCALE_PER_ROW, pair=SCALE_PER_ROW)
def test_view_is_of_the_class(agree: Any, kind: Any) -> None:
    agree(lambda w: w.view(12), lambda: (kind(3, 4, grad=True),), lambda args, out: out * 2)


@pytest.mark.parametrize("wrap", [lambda w: w, lambda w: TwoTensor(w, w.clone())])
def test_view_of_a_quantized_weight_through_its_own_rule(wrap: Any) -> None:
    weight = wrap(Int8Weight.from_float(torch.rand(3, 4)))
    out = aot_compile(lambda w: w.view(12))(weight)
    assert not difference(weight.view(12), out)
    assert type(out) is type(weight)


@pytest.mark.inductor("two")
def test_outputs_alias_an_intermediate(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad(out[0].sum() + out[1].sin().sum(), args[0])

    agree(lambda x: (x * 2).unbind(), lambda: (kind(3, 4, grad=True),), later)


def test_one_of_many_views_is_written_afterwards(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        out[0].mul_(2)

    agree(lambda x: (x * 2).unbind(), lambda: (kind(3, 4, grad=True),), later)  # eager refuses, and so must this


def test_one_of_many_views_is_written_afterwards_without_gradients(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        out[0].mul_(2)
        return out[1].clone(), out[0].clone()

    agree(base_and_view, lambda: (kind(3, 4),), later)


def base_and_view(x: Any) -> Any:
    y = x * 2
    return y, y[1:]


def test_view_beside_its_base_written_afterwards(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        out[1].mul_(2)
        return torch.autograd.grad((out[0] * out[0]).sum(), args[0])

    agree(base_and_view, lambda: (kind(3, 4, grad=True),), later)


def view_of_input(x: Any) -> Any:
    return x.t()[1:].unsqueeze(0)


@pytest.mark.inductor("two")
def test_view_of_an_input(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        return out._base is args[0], torch.autograd.grad((out * out).sum(), args[0])

    agree(view_of_input, lambda: (kind(3, 4, grad=True),), later)
    agree(view_of_input, lambda: (kind(3, 4),))


def test_write_through_a_returned_view(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        out.mul_(2)
        return args[0] * 1, torch.autograd.grad((args[0] * args[0]).sum(), args[0].root)

    agree(view_of_input, lambda: (kind.non_leaf(3, 4),), later)


def test_view_of_a_written_input(agree: Any, kind: Any) -> None:
    def program(x: Any) -> Any:
        x.mul_(2)
        return x[1:], x.t()

    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad((out[0] * out[0]).sum() + out[1].sum(), args[0].root)

    agree(program, lambda: (kind.non_leaf(3, 4),), later)
    agree(program, lambda: (kind(3, 4),))


class NoStrides(WrapperTensor, fallback="each"):
    """Has views, but not `as_strided`."""

    a: torch.Tensor
    b: torch.Tensor


@NoStrides.implements(torch.ops.aten.as_strided.default)
def _(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("no as_strided here")


@pytest.mark.parametrize("nested", [False, True])
def test_class_without_as_strided(agree: Any, nested: bool) -> None:
    def make() -> Any:
        x = NoStrides(torch.ones(3, 4), torch.arange(12.0).view(3, 4))
        return ((TwoTensor(x, x.clone()) if nested else x).requires_grad_(),)

    def later(args: Any, out: Any) -> Any:
        return out._base is args[0], torch.autograd.grad((out * out).sum(), args[0])

    agree(view_of_input, make, later)


@pytest.mark.inductor("two")
@pytest.mark.parametrize("writes", [False, True])
def test_results_that_are_inputs_or_twice_the_same_are_the_same_objects(agree: Any, kind: Any, writes: bool) -> None:
    def program(x: Any) -> Any:
        y = x * 2
        if writes:
            x.mul_(3)
        return x, x, y, y

    def later(args: Any, out: Any) -> Any:
        assert out[0] is out[1] is args[0] and out[2] is out[3]
        return torch.autograd.grad((out[1] + out[3]).sum(), args[0].root)

    agree(program, lambda: (kind.non_leaf(3, 4),), later)


@pytest.mark.inductor("two", "affine")
def test_wrappers_beside_dense_tensors(agree: Any, kind: Any) -> None:
    """Integer and boolean results, several classes, inner tensors of other shapes and dtypes."""

    def program(x: Any, s: Any, i: Any) -> Any:
        return s * s + x, (x @ x.t(), i * 2 + i.cumsum(0), x.argmax(1)), s > 1, kind.inner(s) + 1

    x = torch.rand(3, 4)

    def make() -> Any:
        return x.clone().requires_grad_(), kind(3, 4, grad=True), torch.arange(5)

    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad(out[0].sum() * 2, args[:2])

    agree(program, make, later)


def test_two_classes_and_two_depths(agree: Any, kind: Any) -> None:
    def program(s: Any, t: Any) -> Any:
        return s * t, t.sum(0)

    def make() -> Any:
        return kind(3, 4, grad=True), TwoTensor(kind(3, 4, seed=1), kind(3, 4, seed=2)).requires_grad_()

    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad(out[0].sum() + out[1].sum(), args)

    agree(program, make, later)
