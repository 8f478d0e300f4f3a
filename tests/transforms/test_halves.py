"""Gradients by halves are those of eager mode, however they are transformed in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import grad, jvp, vjp, vmap
from torch.nn import functional as F

import subclass_aot as sa
from tests.transforms.test_calls import MANY, W, X, same

Function = Callable[..., Any]


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


FUNCTIONS: dict[str, Function] = {
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


@pytest.mark.filterwarnings("ignore:`torch.jit.script")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_eager_mode(name: str, around: str) -> None:
    function, transform = FUNCTIONS[name], AROUND[around]
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
