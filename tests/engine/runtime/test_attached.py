"""Results that are views and have a gradient of their own: by a function of autograd, or by hooks, on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile, load_compiled
from subclass_aot.engine.runtime.attached import attached, new_view
from subclass_aot.testing import check_compiled
from tests.fuzz.custom_functions import Both, Itself, Reverse, Turned

reverse: Any = Reverse.apply


class Scaled(torch.autograd.Function):
    """A view of its first argument, with gradients for both."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        return x.view(-1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (weight,) = ctx.saved_tensors
        return (gradient * 3).view_as(weight), weight * 2


def hooked(view: Any, factor: int = 3) -> Any:
    view.register_hook(lambda gradient: gradient * factor)
    return view


def noted(view: Any) -> Any:
    view.grad_fn.register_hook(lambda given, _: tuple(gradient * 5 for gradient in given))
    return view


def noted_before(view: Any) -> Any:
    view.grad_fn.register_prehook(lambda gradients: tuple(gradient * 7 for gradient in gradients))
    return view


def retained(view: Any) -> Any:
    view.retain_grad()
    return view


def with_base(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def both(x: Any) -> Any:
        y = x * 2
        return y, program(y)

    return both


def of_one(*programs: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def all_of_them(x: Any) -> Any:
        y = x * 2
        return tuple(program(y) for program in programs)

    return all_of_them


def written(x: Any) -> Any:
    x.mul_(2)
    return reverse(x)


def of_a_made_leaf(x: Any) -> Any:
    leaf = x.detach().requires_grad_()
    return leaf, reverse(leaf), hooked(leaf.view(-1))


class Flat(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flat = torch.nn.Flatten(0)
        self.flat.register_full_backward_hook(lambda module, given, _: tuple(gradient * 7 for gradient in given))

    def forward(self, x: Any) -> Any:
        return self.flat(x)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a view": reverse,
    "the argument": Itself.apply,
    "a transpose": Turned.apply,
    "a view before": lambda x: reverse(x.view(-1)),
    "a view after": lambda x: reverse(x).view(-1),
    "views around": lambda x: reverse(x.t()).t()[1:],
    "twice": lambda x: reverse(reverse(x.t())),
    "two results": lambda x: Both.apply(x),
    "one of two results": lambda x: Both.apply(x)[1],
    "two of an argument": lambda x: (reverse(x), Itself.apply(x), x.view(-1)),
    "with its base": with_base(reverse),
    "the argument, with its base": with_base(Itself.apply),
    "two of an intermediate": of_one(reverse, reverse),
    "beside a plain view": of_one(Turned.apply, lambda y: y.view(-1)),
    "two results of an intermediate": lambda x: Both.apply(x * 2),
    "a gradient for another argument": lambda x: Scaled.apply(x, x * 2),
    "of an intermediate": lambda x: Turned.apply(x * 2),
    "a hook on an intermediate": lambda x: hooked((x * 2).view(-1)),
    "a hook": lambda x: hooked(x.view(-1)),
    "a hook between": lambda x: hooked(x.view(-1)).view(3, 2),
    "hooks after each other": lambda x: hooked(hooked(x.t())[1:], 2),
    "a hook, with its base": with_base(lambda y: hooked(y.view(-1))),
    "a hook on one of two": of_one(lambda y: hooked(y.t()), lambda y: y[0]),
    "a hook on the gradient function": lambda x: noted(x.view(-1)),
    "a hook before the gradient function": lambda x: noted_before(x.view(-1)).t(),
    "hooks between": lambda x: noted(noted_before(x.t()).t()).view(-1),
    "a hook of a module": Flat(),
    "after a write": written,
    "of a leaf that is made": of_a_made_leaf,
}


def dense() -> Any:
    return torch.arange(1.0, 7).view(2, 3).requires_grad_()


def two() -> Any:
    return TwoTensor(torch.arange(1.0, 7).view(2, 3), torch.ones(2, 3)).requires_grad_()


def facts(call: Callable[[Any], Any], root: Any, is_leaf: bool = True, after: str = "") -> list[Any]:
    """What can be said of the results: what they are views of, what gradients they have, what writes into them do."""
    x = root if is_leaf else root * 1
    found = call(x)
    results = list(found) if isinstance(found, tuple) else [found]
    said: list[Any] = [[r.requires_grad, r.is_leaf, r._is_view(), r._base is x, r._version] for r in results]
    said.append([[r._base is other for other in results] for r in results])
    try:
        if after:
            (results[0] if after == "result" else x).mul_(2)
        said.append([str(r.detach()) for r in results])
        leaves = [root, *(r for r in results if r.is_leaf)]
        loss = sum((i + 1) * (r * r).sum() for i, r in enumerate(results) if r.grad_fn is not None)
        said.append([str(g) for g in torch.autograd.grad(loss, leaves, allow_unused=True)])
        said.append([r._version for r in results])
    except RuntimeError as error:
        said.append(str(error).partition(" is a view")[2])
    return said


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("make", [dense, two])
def test_gradients_are_those_of_eager_mode(name: str, make: Any) -> None:
    for x in (make(), make() * 1)[name == "after a write" :]:
        for dynamic in (False, True):
            check_compiled(PROGRAMS[name], [x], fw_compiler="eager", dynamic=dynamic, tries=0)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("make", [dense, two])
@pytest.mark.parametrize("after", ["", "result", "argument"])
def test_they_are_the_views_that_they_are_in_eager_mode(name: str, make: Any, after: str) -> None:
    compiled = aot_compile(PROGRAMS[name], fw_compiler="eager")
    if make is two and after == "argument" and name == "of a leaf that is made":
        after = "result"  # of a compiled function, a wrapper that `detach` gave has a version counter of its own
    for is_leaf in (True, False)[name == "after a write" :]:
        expected, got = (facts(call, make(), is_leaf, after) for call in (PROGRAMS[name], compiled))
        if make is two and name in ("of an intermediate", "a hook on an intermediate"):
            assert not got[0][2]  # of a wrapper, one result alone is no view of what is no result
            continue
        assert got == expected


@pytest.mark.parametrize("name", ["a view", "two of an intermediate", "a view after", "after a write"])
@pytest.mark.usefixtures("fresh_dynamo")
def test_torch_compile(name: str) -> None:
    compiled = torch.compile(PROGRAMS[name], backend="subclass_aot")
    assert facts(compiled, dense(), False) == facts(PROGRAMS[name], dense(), False)


@pytest.mark.parametrize("name", ["a view", "with its base", "a hook between"])
def test_inductor(name: str) -> None:
    compiled = aot_compile(PROGRAMS[name], fw_compiler="inductor")
    assert facts(compiled, dense()) == facts(PROGRAMS[name], dense())


@pytest.mark.parametrize("name", ["a view", "with its base", "two of an intermediate", "a hook between"])
def test_second_derivatives(name: str) -> None:
    found = []
    for call in (PROGRAMS[name], aot_compile(PROGRAMS[name], fw_compiler="eager", double_backward=True)):
        x = dense()
        results = call(x)
        loss = sum(r.pow(3).sum() for r in (results if isinstance(results, tuple) else (results,)))
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        found.append((gradient, *torch.autograd.grad(gradient.pow(2).sum(), x)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("program", [lambda x: retained(x.view(-1)), lambda x: retained(reverse(x).t())])
def test_a_gradient_is_retained(program: Any) -> None:
    def call(x: Any) -> Any:
        result = program(x)
        return result, result[0]

    grads = []
    for function in (call, aot_compile(call, fw_compiler="eager")):
        first, second = function(dense())
        (first.sum() * 2 + second.sum()).backward()
        grads.append(first.grad)
    assert str(grads[0]) == str(grads[1])


def test_without_gradients_nothing_is_attached() -> None:
    compiled = aot_compile(reverse, fw_compiler="eager")
    with torch.no_grad():
        view = compiled(dense())
    assert view._is_view() and view.grad_fn is None and "attached" not in compiled.source


def test_files(tmp_path: Any) -> None:
    compiled = aot_compile(PROGRAMS["with its base"], fw_compiler="eager")
    expected = facts(compiled, dense())
    compiled.save(tmp_path / "saved")
    again = load_compiled(tmp_path / "saved", trust=True)
    assert facts(again, dense()) == expected


def test_what_it_is_made_of() -> None:
    base, made = torch.ones(2, 3, requires_grad=True) * 1, torch.ones(6, requires_grad=True)
    view = attached(made, lambda x: x.view(-1), "DEFAULT", [base])
    view.sum().backward()
    assert view._base is base and made.grad is not None and view.tolist() == [1] * 6
    assert new_view(lambda x: x, None, base) is not base
