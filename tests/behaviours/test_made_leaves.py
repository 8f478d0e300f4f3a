"""Leaves of autograd's graph that the function makes and returns: gradients arrive in them, as in eager mode."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import DoubleBackwardError, MutationError
from subclass_aot.testing import check_compiled


def flat_view(a: Any, w: Any) -> Any:
    leaf = a.view(-1)
    leaf.requires_grad_(True)
    return leaf, (leaf * 2).sum()


def view_and_what_it_is_a_view_of(a: Any, w: Any) -> Any:
    leaf = a[0].requires_grad_()
    return leaf, (leaf * a).sum(), a.sum()


def together_with_an_input(a: Any, w: Any) -> Any:
    leaf = a[0].requires_grad_()
    return leaf, leaf * leaf * w, w * 2


def several_views(a: Any, w: Any) -> Any:
    first, second = a[0].requires_grad_(), a[1].requires_grad_()
    return first * second, second, first * w, first


def written_before(a: Any, w: Any) -> Any:
    a.mul_(2)
    leaf = a[0].requires_grad_()
    return leaf, leaf * leaf * w


def written_after(a: Any, w: Any) -> Any:
    leaf = a[0].requires_grad_()
    result = leaf + w
    a.mul_(2)
    return leaf, result


def requires_grad_after(a: Any, w: Any) -> Any:
    leaf = a[0].requires_grad_()
    a.requires_grad_()
    return leaf, leaf * a, a[1] * leaf


def under_no_grad(a: Any, w: Any) -> Any:
    with torch.no_grad():
        leaf = w[:]
    leaf.requires_grad_()
    return leaf, leaf * w


def detached(a: Any, w: Any) -> Any:
    leaf = w.detach().requires_grad_()
    return leaf, leaf * leaf * w


def computed(a: Any, w: Any) -> Any:
    leaf = (a * 2).requires_grad_()
    return (leaf * leaf * w).sum(0), leaf


def view_of_computed(a: Any, w: Any) -> Any:
    leaf = (a * 2)[0].requires_grad_()
    return leaf, leaf * w


def views_of_computed(a: Any, w: Any) -> Any:
    middle = a * 2
    first, second = middle[0].requires_grad_(), middle[1].requires_grad_()
    return first, second, first * second * w


def views_of_the_leaf(a: Any, w: Any) -> Any:
    leaf = (a * 2).requires_grad_()
    return leaf[0], leaf, leaf[1], leaf * w


def views_of_a_leaf_that_is_no_result(a: Any, w: Any) -> Any:
    leaf = (a * 2).requires_grad_()
    return leaf[0], leaf[1], leaf * w


def detached_results(a: Any, w: Any) -> Any:
    middle = w * a
    leaf = middle.detach().requires_grad_()
    return middle, leaf, leaf.sin() * middle


def unused(a: Any, w: Any) -> Any:
    return a[0].requires_grad_(), (a * 2).requires_grad_(), a * w


def twice_among_the_results(a: Any, w: Any) -> Any:
    leaf = a[1:].requires_grad_()
    return leaf, {"again": leaf, "product": leaf * w}


def forgets_another(a: Any, w: Any) -> Any:
    leaf, other = a[0].requires_grad_(), a[1].requires_grad_()
    return leaf, leaf * other, other * 3


def not_a_result(a: Any, w: Any) -> Any:
    leaf = a.view(-1).requires_grad_()
    return leaf.sum() * w


def turned(a: Any, w: Any) -> Any:
    leaf = a.t()[0].requires_grad_()
    return leaf, leaf * leaf * w.sum()


def a_parameter(a: Any, w: Any) -> Any:
    leaf = torch.nn.Parameter(a * 2)
    return leaf, leaf * w


def checkpointed(a: Any, w: Any) -> Any:
    leaf = a[0].requires_grad_()
    return leaf, checkpoint(lambda x: x.sin() * w, leaf, use_reentrant=True)


PROGRAMS = [
    flat_view,
    view_and_what_it_is_a_view_of,
    together_with_an_input,
    several_views,
    written_before,
    written_after,
    requires_grad_after,
    under_no_grad,
    detached,
    computed,
    view_of_computed,
    views_of_computed,
    views_of_the_leaf,
    views_of_a_leaf_that_is_no_result,
    detached_results,
    unused,
    twice_among_the_results,
    forgets_another,
    not_a_result,
    turned,
    a_parameter,
    checkpointed,
]


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.rand(size), torch.rand(size))


INPUTS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "dense": lambda: (torch.rand(2, 3), torch.rand(3, requires_grad=True)),
    "non-leaf": lambda: (torch.rand(2, 3), torch.rand(3, requires_grad=True) * 2),
    "wrapper": lambda: (two(2, 3), two(3).requires_grad_()),
    "dense and wrapper": lambda: (torch.rand(2, 3), two(3).requires_grad_()),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager_mode(program: Any, given: str, dynamic: bool) -> None:
    check_compiled(program, INPUTS[given](), tries=0, dynamic=dynamic)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in (not_a_result, under_no_grad, detached)])
@pytest.mark.parametrize("given", ["dense", "wrapper"])
def test_no_input_requires_grad(program: Any, given: str) -> None:
    a, w = INPUTS[given]()
    check_compiled(program, (a, w.detach()), tries=0)


def test_an_input_that_is_turned() -> None:
    def before(a: Any, w: Any) -> Any:
        a.t_()
        leaf = a[0].requires_grad_()
        return leaf, leaf * leaf * w[:2]

    check_compiled(before, INPUTS["dense"](), tries=0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_in_other_modes(mode: Any) -> None:
    def switched_on(a: Any, w: Any) -> Any:
        with torch.enable_grad():
            return together_with_an_input(a, w)

    with mode():
        check_compiled(together_with_an_input, INPUTS["dense"](), tries=0)
        check_compiled(switched_on, INPUTS["dense"](), tries=0)


def test_a_function_that_looks_at_values() -> None:
    def program(a: Any, w: Any) -> Any:
        leaf = a[0].requires_grad_()
        return leaf, leaf * w if a.sum() > 0 else leaf * 2

    check_compiled(program, INPUTS["dense"](), tries=0)


def test_jagged_tensors() -> None:
    def program(x: Any, w: Any) -> Any:
        leaf = x.detach().requires_grad_()
        return leaf, leaf.sin() * w

    rows, runs = [torch.rand(2, 3), torch.rand(4, 3)], []
    for function in (program, aot_compile(program)):
        w = torch.ones(3, requires_grad=True)
        x = torch.nested.nested_tensor(rows, layout=torch.jagged)
        leaf, result = function(x, w)
        result.values().sum().backward()
        runs.append((leaf.is_leaf, leaf.grad.values(), w.grad))
    torch.testing.assert_close(*runs)


def test_nobody_waits_for_a_gradient_that_does_not_come() -> None:
    """Backward through a result that does not depend on the leaf leaves it alone."""

    def program(a: Any, w: Any) -> Any:
        leaf = a[0].requires_grad_()
        return leaf, leaf * 2, w * 3

    for function in (program, aot_compile(program)):
        a, w = INPUTS["dense"]()
        leaf, double, triple = function(a, w)
        triple.sum().backward()
        assert leaf.grad is None and torch.equal(w.grad, torch.full((3,), 3.0))
        (gradient,) = torch.autograd.grad(double.sum(), leaf)
        assert torch.equal(gradient, torch.full((3,), 2.0)) and leaf.grad is None


@pytest.mark.parametrize("needs_it", [True, False])
@pytest.mark.parametrize("given", ["dense", "wrapper"])
@pytest.mark.parametrize("make", [lambda a: a[0], lambda a: a.detach()[0], lambda a: a[0] * 2, lambda a: a[0].detach()])
def test_a_write_into_the_leaf_is_seen_where_backward_needs_what_it_held(make: Any, given: str, needs_it: bool) -> None:
    def program(a: Any) -> Any:
        leaf = make(a).requires_grad_()
        return leaf, leaf * leaf if needs_it else leaf * 2

    for function in (program, aot_compile(program)):
        leaf, result = function(INPUTS[given]()[0])
        with torch.no_grad():
            leaf.mul_(2)
        if needs_it:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.sum().backward()
        else:
            result.sum().backward()
            assert leaf.grad is not None


def test_a_gradient_of_another_class_than_expected() -> None:
    def program(a: Any) -> Any:
        leaf = a[0].requires_grad_()
        return leaf, leaf * 2

    for function in (program, aot_compile(program)):
        leaf, result = function(torch.rand(2, 3))
        result.backward(two(3))
        assert isinstance(leaf.grad, TwoTensor)


def test_second_derivatives_are_refused_where_a_result_depends_on_it() -> None:
    with pytest.raises(DoubleBackwardError, match=r"makes output\[0\] a leaf of autograd's graph and computes with it"):
        aot_compile(together_with_an_input, double_backward=True)(*INPUTS["dense"]())
    check_compiled(unused, INPUTS["dense"](), tries=0, double_backward=True)


def test_a_view_of_a_leaf_that_is_a_view_itself() -> None:
    def program(a: Any, w: Any) -> Any:
        leaf = a.view(-1).requires_grad_()
        return leaf[1:3], leaf, leaf * 2

    check_compiled(program, INPUTS["dense"](), tries=0)
    check_compiled(program, INPUTS["dense"](), tries=0, dynamic=True)
    with pytest.raises(MutationError, match="A result is a view of a leaf of autograd's graph"):
        aot_compile(program)(*INPUTS["wrapper"]())


def test_views_are_views_to_autograd() -> None:
    a = torch.rand(2, 3)
    leaf, view, _ = aot_compile(lambda a: (x := a.view(-1).requires_grad_(), x[2:4], x * 2))(a)
    assert leaf._base is a and view._base is a and leaf.is_leaf
    view.sum().backward()
    assert torch.equal(leaf.grad, torch.tensor([0.0, 0, 1, 1, 0, 0]))


@pytest.mark.parametrize("program", [flat_view, computed])
@pytest.mark.parametrize("given", ["dense", "wrapper"])
def test_it_goes_when_nobody_holds_it(program: Any, given: str) -> None:
    leaf, result = sorted(aot_compile(program)(*INPUTS[given]()), key=lambda x: not x.is_leaf)
    held = weakref.ref(leaf)
    result.sum().backward()
    assert leaf.grad is not None
    del leaf, result
    assert held() is None
