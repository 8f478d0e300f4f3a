"""Transforms of `torch.func` around compiled functions run graphs, as eager mode runs the function."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacrev, jvp, vjp, vmap

import subclass_aot as sa
from subclass_aot.testing import difference

Function = Callable[..., Any]

W, X = torch.linspace(-1, 1, 16).reshape(4, 4), torch.linspace(0, 2, 12).reshape(3, 4)
MANY = torch.linspace(0, 3, 60).reshape(5, 3, 4)
OUTSIDE = torch.arange(3.0)


def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (x @ w).sin().sum()


@pytest.fixture(autouse=True)
def nothing_is_said() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="(?s).*was compiled, and is called inside")
        warnings.filterwarnings("error", message="(?s).*could not be compiled")
        yield


def same(expected: Any, got: Any) -> None:
    expected, structure = torch.utils._pytree.tree_flatten(expected)
    got, found = torch.utils._pytree.tree_flatten(got)
    assert structure == found
    assert not [
        text
        for text in (difference(a, b, strides=False, rtol=1e-4, atol=1e-5) for a, b in zip(expected, got, strict=True))
        if text
    ]


TRANSFORMS: dict[str, Callable[[Function], Any]] = {
    "grad": lambda f: grad(f)(W, X),
    "grad of both": lambda f: grad(f, (0, 1))(W, X),
    "grad and value": lambda f: grad_and_value(f)(W, X),
    "vjp": lambda f: vjp(f, W, X)[1](torch.ones(())),
    "vjp, by halves": lambda f: [vjp(lambda w: (f(w, X), w * f(w, X)), W)[1]((torch.ones(()), W))],
    "vmap": lambda f: vmap(f, (None, 0))(W, MANY),
    "vmap of other dims": lambda f: vmap(f, (1, -1), out_dims=0)(
        W.repeat(1, 2).view(4, 2, 4), MANY[:2].permute(1, 2, 0)
    ),
    "vmap in chunks": lambda f: vmap(f, (None, 0), chunk_size=2)(W, MANY),
    "vmap of vmap": lambda f: vmap(vmap(f, (None, 0)), (0, None))(torch.stack([W, 2 * W]), MANY),
    "jacrev": lambda f: jacrev(lambda w: w * f(w, X))(W),
    "jacrev of jacrev": lambda f: jacrev(jacrev(f))(W, X),
    "grad of grad": lambda f: grad(lambda w: grad(f)(w, X).sin().sum())(W),
    "grad of vmap": lambda f: grad(lambda w: vmap(f, (None, 0))(w, MANY).sum())(W),
    "vmap of grad": lambda f: vmap(grad(f), (None, 0))(W, MANY),
    "vmap of grad of vmap": lambda f: vmap(lambda scale: grad(lambda w: vmap(f, (None, 0))(w * scale, MANY).sum())(W))(
        torch.ones(2)
    ),
    "over what is outside": lambda f: grad(lambda w: vmap(lambda x: f(w, x) * f(2 * w, x))(MANY).sum())(W),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_as_in_eager_mode(name: str) -> None:
    transform, compiled = TRANSFORMS[name], sa.aot_compile(loss)
    expected = transform(loss)
    for _ in range(2):
        same(expected, transform(compiled))
    assert "calls inside a transform" not in compiled.explain()
    same(loss(W, X), compiled(W, X))


nestings = st.lists(st.sampled_from(["grad", "vmap", "vjp", "jacrev"]), min_size=1, max_size=3)


def nested(f: Function, steps: list[str]) -> Function:
    """A function of a vector, transformed step by step."""
    for step in steps:
        if step == "grad":
            f = grad(lambda x, f=f: f(x).sin().sum())
        elif step == "vmap":
            f = lambda x, f=f: vmap(lambda s: f(x * s))(torch.tensor([0.5, 2.0])).sum(0)  # noqa: E731
        elif step == "vjp":
            f = lambda x, f=f: (lambda out, pull: pull(out)[0])(*vjp(f, x))  # noqa: E731
        else:
            f = lambda x, f=f: jacrev(f)(x).reshape(-1, 3).sum(0)  # noqa: E731
    return f


@settings(max_examples=12, deadline=None)
@given(nestings)
def test_nestings(steps: list[str]) -> None:
    x = torch.tensor([0.3, -0.2, 0.5])
    same(nested(cubic, steps)(x), nested(CUBIC, steps)(x))


def cubic(x: torch.Tensor) -> torch.Tensor:
    return x * x.cos() + x.sum() * WEIGHT.to_plain()[0]


WEIGHT = sa.Int8Weight.from_float(torch.randn(2, 3))
CUBIC = sa.aot_compile(cubic)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        sa.quantize_(self.layers, sa.Int8Weight, "2")

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, Any]:
        return {"out": self.layers(x) * scale, "scale": scale}


def test_gradients_of_parameters_that_functional_call_puts_in() -> None:
    model = Network()
    compiled = sa.aot_compile(model)
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def of(function: Any) -> Any:
        def total(parameters: Any, x: Any) -> Any:
            return functional_call(model, parameters, (x,))["out"].square().sum()

        class Holds(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = model

            def forward(self, x: Any) -> Any:
                return function(x)

        holder = Holds()

        def held(parameters: Any, x: Any) -> Any:
            named = {f"inner.{name}": p for name, p in parameters.items()}
            return functional_call(holder, named, (x,))["out"].square().sum()

        return total if function is model else held

    same(grad(of(model))(parameters, X), grad(of(compiled))(parameters, X))
    per_sample = vmap(grad(of(model)), (None, 0))(parameters, MANY)
    same(per_sample, vmap(grad(of(compiled)), (None, 0))(parameters, MANY))


def test_parameters_get_their_gradients_from_outside() -> None:
    """A plain backward goes on where a transform ends."""
    model = Network()
    compiled = sa.aot_compile(model)
    for transform in (
        lambda f: grad(lambda x: f(x)["out"].square().sum())(X).sum(),
        lambda f: vmap(lambda x: f(x)["out"].square().sum())(MANY).sum(),
    ):
        found = []
        for function in (model, compiled):
            model.zero_grad()
            transform(function).backward()
            found.append([p.grad for p in model.parameters() if p.requires_grad])
        same(*found)


def test_values_of_python_and_auxiliary_results() -> None:
    model = Network()
    compiled = sa.aot_compile(model)
    for scale in (1.0, 2.0, 3.0):

        def with_aux(function: Any, scale: float = scale) -> Any:
            return grad(
                lambda x: (lambda r: (r["out"].sum() * r["scale"], r["out"]))(function(x, scale=scale)), has_aux=True
            )(X)

        same(with_aux(model), with_aux(compiled))


def test_what_a_closure_holds_may_change() -> None:
    box = {"k": 2.0, "t": torch.ones(3)}

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * box["t"]).sum() ** box["k"]

    compiled = sa.aot_compile(f)
    x = torch.arange(3.0)
    for box["k"], box["t"] in ((2.0, torch.ones(3)), (3.0, torch.ones(3)), (3.0, torch.full((3,), 2.0))):
        same(grad(f)(x), grad(compiled)(x))
        same(vmap(f)(x[None]), vmap(compiled)(x[None]))


def test_a_closure_over_what_is_transformed() -> None:
    def outer(make: Callable[[Function], Function]) -> Any:
        def of(w: torch.Tensor) -> Any:
            inner = make(lambda x: (x @ w).sin().sum())
            return vmap(inner)(MANY).sum()

        return grad(of)(W)

    same(outer(lambda f: f), outer(sa.aot_compile))


def test_results_that_do_not_depend() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.sin(), y.argmax(), y * 2

    compiled = sa.aot_compile(f)
    same(vjp(lambda x: f(x, X)[0], X)[1](X), vjp(lambda x: compiled(x, X)[0], X)[1](X))
    same(vmap(f)(X, X), vmap(compiled)(X, X))
    same(grad(lambda x, y: f(x, y)[2].sum(), (0, 1))(X, X), grad(lambda x, y: compiled(x, y)[2].sum(), (0, 1))(X, X))


def test_second_derivatives_outside() -> None:
    compiled = sa.aot_compile(loss, double_backward=True)
    found = []
    for function in (loss, compiled):
        w = W.clone().requires_grad_()
        (first,) = torch.autograd.grad(vmap(function, (None, 0))(w, MANY).sum(), w, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), w))
    same(*found)


# -- what is left to the function itself -------------------------------------------------------------------------------


def writes(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x.sin()


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rand(3)


def gives_back(x: torch.Tensor) -> Any:
    return x, x.view(-1), x.sin()


UNCOMPILED: dict[str, tuple[Function, Callable[[Function], Any]]] = {
    "a write": (writes, lambda f: grad(lambda x: f(x * 1).sum())(torch.ones(3))),
    "random, different": (noisy, lambda f: vmap(f, randomness="different")(torch.ones(2, 3))),
    "random, same": (noisy, lambda f: vmap(f, randomness="same")(torch.ones(2, 3))),
    "random, grad": (noisy, lambda f: grad(lambda x: f(x).sum())(torch.ones(3))),
    "a result that is an argument": (gives_back, lambda f: vmap(f)(torch.ones(2, 3))),
    "forward mode": (torch.sin, lambda f: jvp(f, (torch.ones(3),), (torch.ones(3),))),
    "hessian": (lambda x: x.sin().sum(), lambda f: hessian(f)(torch.ones(3))),
    "nothing transformed": (torch.sin, lambda f: grad(lambda x: (x * f(OUTSIDE)).sum())(torch.ones(3))),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script")
@pytest.mark.parametrize("name", UNCOMPILED)
def test_the_function_itself_runs(name: str) -> None:
    function, transform = UNCOMPILED[name]
    compiled = sa.aot_compile(function)
    torch.manual_seed(0)
    expected = transform(function)
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="was compiled, and is called inside"):
        got = transform(compiled)
    same(expected, got)
    assert "calls inside a transform" in compiled.explain()


def test_errors_are_those_of_eager_mode() -> None:
    compiled = sa.aot_compile(loss)
    for transform in (lambda f: grad(f)(W, X.t()), lambda f: vmap(f)(W, X)):
        with pytest.raises(Exception) as expected:  # noqa: PT011
            transform(loss)
        with warnings.catch_warnings(), pytest.raises(expected.type) as got:
            warnings.simplefilter("ignore")
            transform(compiled)
        assert str(got.value) == str(expected.value)


def test_what_cannot_be_compiled_runs_as_in_eager_mode() -> None:
    def compiler(graph: Any, inputs: Any) -> Any:
        if any(x.dim() == 3 for x in inputs):
            raise RuntimeError("not today")
        return lambda *args: graph(*args)

    compiled = sa.aot_compile(loss, fw_compiler=compiler)
    with (
        warnings.catch_warnings(),
        pytest.warns(UserWarning, match="(?s)makes of loss could not be compiled.*not today"),
    ):
        warnings.simplefilter("default")
        same(vmap(loss, (0, None))(W[None], X), vmap(compiled, (0, None))(W[None], X))
    same(vmap(loss, (0, None))(W[None], X), vmap(compiled, (0, None))(W[None], X))
