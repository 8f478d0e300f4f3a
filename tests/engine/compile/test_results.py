"""What a user may do with results is what he may do with eager's: write into them, view them, send gradients back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import MutationError
from subclass_aot.testing import check_compiled, difference, sharing
from tests.fuzz.trees import Scaled


def dense() -> Any:
    return torch.arange(1.0, 7.0).view(2, 3).clone()


def wrapper() -> Any:
    return TwoTensor(dense(), dense() * 2)


def offset() -> Any:
    return TwoTensor(torch.arange(9.0)[3:].view(2, 3), torch.arange(8.0)[2:].view(2, 3))


MAKERS: dict[str, Callable[[], Any]] = {"dense": dense, "wrapper": wrapper, "offset": offset}

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "value": lambda x: x * 2,
    "view of an intermediate": lambda x: (x * 2)[0],
    "transposed intermediate": lambda x: (x * 2).t(),
    "two views of an intermediate": lambda x: (lambda y: (y[0], y.t()))(x * 2),
    "intermediate and its view": lambda x: (lambda y: (y, y.view(-1)))(x * 2),
    "view of an input": lambda x: x.t()[1:],
    "input": lambda x: x,
    "view of a written input": lambda x: (x.mul_(2).t(), x),
    "detached": lambda x: (x * 2).detach(),
    "mixed": lambda x: ((x * 2)[0], (x.detach() * 3)[0], x.detach()),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("tracked", [True, False], ids=["grad", "no_grad"])
def test_results_can_be_written(name: str, kind: str, tracked: bool) -> None:
    weight = torch.tensor(3.0, requires_grad=True)
    runs = []
    for call in (PROGRAMS[name], aot_compile(PROGRAMS[name])):
        start = MAKERS[kind]().requires_grad_()
        x = start.clone()
        results = call(x)
        results = results if isinstance(results, tuple) else (results,)
        with torch.set_grad_enabled(tracked):
            for result in results:
                result.mul_(weight)
        ends = [r for r in (*results, x) if r.requires_grad]
        torch.autograd.backward(ends, [torch.ones_like(e) for e in ends])
        runs.append((x.detach(), *(r.detach() for r in results), start.grad))
    for expected, got in zip(*runs, strict=True):
        assert not difference(expected, got)


def test_no_grad_is_no_grad_inside() -> None:
    seen = []

    def program(x: Any) -> Any:
        seen.append((torch.is_grad_enabled(), x.requires_grad))
        return x.mul_(2)

    x = wrapper().requires_grad_()
    with torch.no_grad():
        aot_compile(program)(x)
    assert seen[0][0] is False
    assert torch.equal(x.a, dense() * 2) and x.requires_grad and x.is_leaf


def test_a_leaf_that_the_function_makes() -> None:
    def program(x: Any) -> Any:
        return (x * 2).detach().requires_grad_(), x * 3

    x = dense().requires_grad_()
    leaf, product = aot_compile(program)(x)
    assert leaf.is_leaf and leaf.requires_grad and leaf._base is None
    (leaf * 2).sum().backward()
    product.sum().backward()
    assert (leaf.grad == 2).all() and (x.grad == 3).all()


def test_a_view_made_under_no_grad_leads_nowhere() -> None:
    def program(x: Any) -> Any:
        with torch.no_grad():
            view = x[1:]
        return view, view[..., 1:], x * 2

    for make in (dense, wrapper):
        x = make().requires_grad_()
        view, inner, product = aot_compile(program)(x)
        assert view._base is x and inner._base is x
        product.backward(torch.ones_like(product))
        assert not difference(torch.full_like(x, 2.0).detach(), x.grad)


def test_gradients_of_classes_that_compute_dense_ones() -> None:
    """Operators on a `Scaled` give dense tensors, so its gradients come dense, or as what `to_plain` makes dense."""
    for tangent in (torch.ones(2, 3), Scaled(torch.ones(2, 3), torch.ones(2, 1))):
        grads = []
        for call in (lambda x: x.clone(), aot_compile(lambda x: x.clone())):
            x = Scaled(torch.ones(2, 3), torch.full((2, 1), 2.0)).requires_grad_()
            call(x).backward(tangent)
            grads.append(x.grad.to_plain() if isinstance(x.grad, Scaled) else x.grad)
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize("reshape", [lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x.squeeze_()])
@pytest.mark.parametrize("tracked", [True, False], ids=["grad", "no_grad"])
def test_an_input_that_is_used_after_it_was_turned(reshape: Any, tracked: bool) -> None:
    def program(x: Any) -> Any:
        with torch.set_grad_enabled(tracked):
            reshape(x)
        return x.sin()

    for make, of_a_view in itertools.product((dense, wrapper), (False, True)):
        runs = []
        for call in (program, aot_compile(program)):
            start = make()[:, :1].clone().requires_grad_(tracked)
            x = start.clone().view_as(start) if of_a_view else start.clone()
            out = call(x)
            if tracked:
                torch.autograd.backward([out, x], [torch.ones_like(out), torch.ones_like(x)])
            runs.append((x.detach(), out.detach(), start.grad))
        for expected, got in zip(*runs, strict=True):
            assert not difference(expected, got)


def test_a_leaf_is_turned_under_no_grad() -> None:
    def program(x: Any) -> Any:
        with torch.no_grad():
            x.t_()
        return x * 2

    x = dense().requires_grad_()
    out = aot_compile(program)(x)
    assert x.shape == out.shape == (3, 2) and x.is_leaf and x.requires_grad


def test_a_view_that_was_turned_under_no_grad() -> None:
    def program(x: Any) -> Any:
        view = x[1:]
        with torch.no_grad():
            view.t_()
        return view

    check_compiled(program, [dense()])
    check_compiled(program, [dense().requires_grad_() * 1], training=False)  # whose backward fails in eager mode
    with pytest.raises(MutationError, match="the view cannot be regenerated"):
        aot_compile(program)(wrapper())


def test_a_view_that_is_used_after_its_base_was_turned() -> None:
    """Made again of the turned tensor, it would fit where that is square, and its gradient would be another."""

    def program(x: Any, use: bool) -> Any:
        y = x * 2
        view = y.t()
        y.t_()
        return view if use else y

    x = torch.arange(4.0).view(2, 2).requires_grad_()
    assert torch.equal(aot_compile(program)(x, False), program(x, False))
    with pytest.raises(MutationError, match="a view of it is used that was made before"):
        aot_compile(program)(x, True)
    check_compiled(program, [x.detach(), True])


@pytest.mark.parametrize("kind", MAKERS)
def test_a_view_of_what_is_turned_later(kind: str) -> None:
    """The view was one of three, of what has one row in the end."""

    def of_an_input(x: Any) -> Any:
        view = x.unbind(1)[2]
        x.unsqueeze_(0)
        return view

    def of_an_intermediate(x: Any) -> Any:
        y = x * 2
        view = y.unbind(1)[2]
        y.unsqueeze_(0)
        return view, y

    for program in (of_an_input, of_an_intermediate):
        x = MAKERS[kind]()
        if kind == "dense":
            check_compiled(program, [x])
            continue
        with pytest.raises(MutationError, match="changes the size or strides"):
            aot_compile(program)(x)
        assert x.shape == (2, 3)


def test_writes_into_what_is_expanded() -> None:
    x = torch.ones(3)
    with pytest.raises(MutationError, match="several elements are one place in memory") as error:
        aot_compile(lambda x: x.expand(2, 3).add_(1))(x)
    assert "test_results.py" in str(error.value) and torch.equal(x, torch.ones(3))


def test_a_result_and_its_twin_are_two_objects() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        return y, y.detach()

    for make in (dense, wrapper):
        first, second = aot_compile(program)(make().requires_grad_())
        assert first is not second and first.requires_grad and not second.requires_grad
        assert sharing([first, second]) == sharing([first, first])


SEEN_AS: dict[str, Callable[[Any], Any]] = {
    "real": lambda x: x.real,
    "imag": lambda x: x.imag[1:].t(),
    "bytes": lambda x: x.view(torch.uint8),
    "wider": lambda x: torch.view_as_real(x)[1:].view(torch.complex64),
    "narrower": lambda x: x.view(torch.float32)[:, 1:3],
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("view", SEEN_AS)
@pytest.mark.parametrize("which", [lambda view, x: view(x), lambda view, x: view(x).a, lambda view, x: view(x.a)])
def test_leaves_of_an_input_seen_as_another_dtype(which: Any, view: str, dynamic: Any) -> None:
    """A compiled result is memory of the input, whether the graph writes that or not."""

    def make() -> Any:
        whole = torch.arange(24.0).view(12, 2)
        return TwoTensor(torch.view_as_complex(whole[2:8]).view(2, 3), torch.view_as_complex(whole + 1)[:6].view(2, 3))

    def program(x: Any) -> Any:
        with torch.no_grad():
            x.mul_(2)
            return which(SEEN_AS[view], x)

    x, y = make(), make()
    expected, got = program(x), aot_compile(program, dynamic=dynamic)(y)
    assert sharing([expected, x]) == sharing([got, y])
    assert not difference(expected, got)
    with torch.no_grad():
        expected.add_(1), got.add_(1)
    assert not difference(x, y)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", ["dense", "wrapper"])
def test_what_is_written_as_another_dtype(kind: str, mode: Any) -> None:
    def program(x: Any) -> Any:
        return (x if kind == "dense" else x.a).view(torch.int32)[1:].zero_()

    with mode():
        x, y = MAKERS[kind](), MAKERS[kind]()
        expected, got = program(x), aot_compile(program)(y)
        assert sharing([expected, x]) == sharing([got, y])
        assert not difference(expected, got) and not difference(x, y)


def test_an_inner_tensor_that_gets_a_history_is_refused() -> None:
    def program(x: Any, weight: Any) -> Any:
        x.a.add_(weight * 2)
        return x

    def without_history(x: Any, weight: Any) -> Any:
        x.a.add_(weight.detach() * 2)
        return x

    weight = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(MutationError, match=r"args\[0\].a is an inner tensor, and .* what requires grad"):
        aot_compile(program)(wrapper(), weight)
    x, y = wrapper(), wrapper()
    assert not difference(without_history(x, weight), aot_compile(without_history)(y, weight))
