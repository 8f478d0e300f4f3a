"""Transforms of `torch.func` around compiled functions give what they give around the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacrev, jvp, vjp, vmap
from torch.nn import functional as F

import subclass_aot as sa
from subclass_aot.testing import difference

pytestmark = [
    pytest.mark.filterwarnings("ignore:(?s).*was compiled, and is called inside"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script"),  # torch's own, at its first use of forward mode
]

Function = Callable[..., Any]

W, X = torch.linspace(-1, 1, 16).reshape(4, 4), torch.linspace(0, 2, 12).reshape(3, 4)
MANY = torch.linspace(0, 3, 60).reshape(5, 3, 4)
OUTSIDE = torch.arange(3.0)


def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (x @ w).sin().sum()


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
    "vmap of jacrev": lambda f: vmap(jacrev(f, 1), (None, 0))(W, MANY),
    "vjp, gone back twice": lambda f: (lambda pull: pull(torch.ones(())) + pull(torch.zeros(())))(vjp(f, W, X)[1]),
    "autograd around vmap": lambda f: (lambda w: torch.autograd.grad(vmap(f, (None, 0))(w, MANY).sum(), w))(
        W.clone().requires_grad_()
    ),
    "over what is outside": lambda f: grad(lambda w: vmap(lambda x: f(w, x) * f(2 * w, x))(MANY).sum())(W),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_as_in_eager_mode(name: str) -> None:
    transform, compiled = TRANSFORMS[name], sa.aot_compile(loss)
    expected = transform(loss)
    for _ in range(2):
        same(expected, transform(compiled))
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


def test_autocast_at_the_call() -> None:
    """A backward within it is cast, whatever forward was."""

    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return (x @ W).sin().sum()

    compiled = sa.aot_compile(f)
    with torch.autocast("cpu", torch.bfloat16):
        same(vmap(grad(f))(MANY), vmap(grad(compiled))(MANY))
        same(grad(f)(X), grad(compiled)(X))


def test_sizes_that_change() -> None:
    compiled = sa.aot_compile(loss)
    for n in (5, 4, 3, 2, 1, 5):
        same(grad(loss)(W, MANY[0, :1].expand(n, 4)), grad(compiled)(W, MANY[0, :1].expand(n, 4)))
        same(vmap(grad(loss), (None, 0))(W, MANY[:n]), vmap(grad(compiled), (None, 0))(W, MANY[:n]))
        same(*(grad(lambda w, f=f, n=n: vmap(f, (None, 0))(w, MANY[:n]).sum())(W) for f in (loss, compiled)))


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


def test_errors_are_those_of_eager_mode() -> None:
    compiled = sa.aot_compile(loss)
    for transform in (lambda f: grad(f)(W, X.t()), lambda f: vmap(f)(W, X)):
        with pytest.raises(Exception) as expected:  # noqa: PT011
            transform(loss)
        with pytest.raises(expected.type) as got:
            transform(compiled)
        assert str(got.value) == str(expected.value)


# -- functions with gradients of many kinds --------------------------------------------------------------------------


def no_grad_inside(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = x * 2
    return (x * scale).sum() + (x * x.detach()).sum()


class Claims(torch.autograd.Function):
    """A function whose derivative is said to be another one than it is."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 7 * gradient * ctx.saved_tensors[0].square()


def layouts(x: torch.Tensor) -> torch.Tensor:
    return x.t().reshape(-1).view(3, 4).transpose(0, 1).contiguous().view(-1)[2:9].square().sum()


def reads_strides(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(x.contiguous() * 1, (2, 2), (4, 1)).sin().sum()


def writes_inside(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.mul_(x)
    y[0] = 1.0
    return y.sum()


def normalized(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (4,)).softmax(-1).log().square().sum()


def in_bfloat16(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ W).float().sin().sum()


GRADIENTS_OF: dict[str, Function] = {
    "without gradients inside": no_grad_inside,
    "a derivative of its own": lambda x: Claims.apply(x).sum(),
    "layouts": layouts,
    "strides": reads_strides,
    "writes": writes_inside,
    "norm": normalized,
    "gather": lambda x: x[torch.tensor([0, 2]), torch.tensor([1, 1])].exp().sum() + x[..., 1].sum(),
    "convolution": lambda x: F.conv1d(x[None], torch.ones(2, 3, 2)).relu().sum(),
    "autocast": in_bfloat16,
}
ON = torch.ones(())
AROUND: dict[str, Callable[[Function], Any]] = {
    "grad": lambda f: grad(f)(X),
    "vmap of grad along other dimensions": lambda f: vmap(grad(f), -1, 1)(MANY.permute(1, 2, 0)),
    "vmap of vmap of grad": lambda f: vmap(vmap(grad(f)))(torch.stack([MANY, MANY + 1])),
    "grad of vmap": lambda f: grad(lambda m: vmap(f)(m).square().sum())(MANY),
    "grad of grad": lambda f: grad(lambda x: grad(f)(x).square().sum())(X),
    "grad of vmap of grad": lambda f: grad(lambda m: vmap(grad(f))(m).square().sum())(MANY),
    "vmap of the pull": lambda f: vmap(vjp(f, X)[1])(torch.tensor([1.0, 2.0])),
    "grad of the pull": lambda f: (lambda pull: grad(lambda t: pull(t)[0].square().sum())(ON))(vjp(f, X)[1]),
    "forward mode over the pull": lambda f: (lambda pull: jvp(pull, (ON,), (ON,)))(vjp(f, X)[1]),
    "autograd inside": lambda f: grad(
        lambda x: (torch.autograd.grad(f(x), x, create_graph=True)[0] * x).square().sum()
    )(X),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", GRADIENTS_OF)
def test_gradients(name: str, around: str) -> None:
    function, transform = GRADIENTS_OF[name], AROUND[around]
    compiled = sa.aot_compile(function)
    expected = transform(function)
    for _ in range(2):
        same(expected, transform(compiled))


def test_gradients_of_some_results() -> None:
    def f(x: torch.Tensor) -> Any:
        return x.sqrt(), x.sin(), x.detach() * 2

    compiled = sa.aot_compile(f)
    zero = torch.zeros(3)  # where the gradient of the root has no value
    for i in (1, 2):
        same(grad(lambda x, i=i: f(x)[i].sum())(zero), grad(lambda x, i=i: compiled(x)[i].sum())(zero))
    pulls = [vjp(g, zero + 1)[1]((zero + 1, zero + 2, zero + 3)) for g in (f, compiled)]
    same(*pulls)


def test_a_value_without_gradient() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sin().sum() + y.detach().sum()

    compiled = sa.aot_compile(f)
    same(grad(f, (0, 1))(X, X), grad(compiled, (0, 1))(X, X))
    same(vmap(grad(f, (0, 1)), (0, None))(MANY, X), vmap(grad(compiled, (0, 1)), (0, None))(MANY, X))


# -- functions that do more than compute -------------------------------------------------------------------------------


def writes(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x.sin()


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rand(3)


def gives_back(x: torch.Tensor) -> Any:
    return x, x.view(-1), x.sin()


MORE: dict[str, tuple[Function, Callable[[Function], Any]]] = {
    "a write": (writes, lambda f: grad(lambda x: f(x * 1).sum())(torch.ones(3))),
    "random, different": (noisy, lambda f: vmap(f, randomness="different")(torch.ones(2, 3))),
    "random, same": (noisy, lambda f: vmap(f, randomness="same")(torch.ones(2, 3))),
    "random, grad": (noisy, lambda f: grad(lambda x: f(x).sum())(torch.ones(3))),
    "a result that is an argument": (gives_back, lambda f: vmap(f)(torch.ones(2, 3))),
    "forward mode": (torch.sin, lambda f: jvp(f, (torch.ones(3),), (torch.ones(3),))),
    "hessian": (lambda x: x.sin().sum(), lambda f: hessian(f)(torch.ones(3))),
    "nothing transformed": (torch.sin, lambda f: grad(lambda x: (x * f(OUTSIDE)).sum())(torch.ones(3))),
}


@pytest.mark.parametrize("name", MORE)
def test_what_does_more_than_compute(name: str) -> None:
    function, transform = MORE[name]
    compiled = sa.aot_compile(function)
    torch.manual_seed(0)
    expected = transform(function)
    torch.manual_seed(0)
    same(expected, transform(compiled))
