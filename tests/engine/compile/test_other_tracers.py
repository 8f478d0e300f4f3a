"""A compiled function inside a tracer of torch's is the function itself, whose operators that one sees."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from functorch.compile import aot_function, nop
from torch._functorch.aot_autograd import aot_export_module
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from subclass_aot import TwoTensor, aot_compile


def plain(x: Any) -> Any:
    return (x * 2).sin()


def writes(x: Any) -> Any:
    y = x.clone()
    y.mul_(2)
    return y + 1


def branches(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


def wraps(x: Any) -> Any:
    return (TwoTensor(x, x + 1) * 2).a


class Calling(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return (self.function(x),)


def fake(function: Any) -> Any:
    with FakeTensorMode():
        return function(torch.ones(3)).shape


def fake_outside_of_its_mode(function: Any) -> Any:
    with FakeTensorMode():
        x = torch.ones(3)
    return function(x).shape


def fake_gradient(function: Any) -> Any:
    with FakeTensorMode():
        x = torch.ones(3, requires_grad=True)
        function(x * 1).sum().backward()
    return x.grad.shape  # type: ignore[union-attr]


def fakes_inside(function: Any) -> Any:
    with FakeTensorMode():
        return function(TwoTensor(torch.ones(3), torch.ones(3))).shape


def functionalized(function: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is called inside torch.func")
        return torch.func.functionalize(function)(X)


X = torch.ones(3)
TRACERS = {
    "make_fx": lambda f: make_fx(f)(X)(X),
    "make_fx, fake": lambda f: make_fx(f, tracing_mode="fake")(X)(X),
    "make_fx, symbolic": lambda f: make_fx(f, tracing_mode="symbolic")(X)(X),
    "aot_function": lambda f: aot_function(f, nop)(X),
    "aot_function, gradients": lambda f: aot_function(f, nop)(X.clone().requires_grad_()).detach(),
    "aot_export_module": lambda f: aot_export_module(Calling(f), (X,), trace_joint=False)[0](X)[0],
    "functionalize": functionalized,
    "fake": fake,
    "fake outside": fake_outside_of_its_mode,
    "fake gradient": fake_gradient,
    "fakes inside": fakes_inside,
}


FAIL_IN_EAGER_MODE = {
    wraps: ("functionalize", "fake gradient", "fakes inside"),
    branches: ("aot_function, gradients", "fake gradient", "fakes inside"),
}
CASES = [
    (function, name)
    for function in (plain, writes, branches, wraps)
    for name in TRACERS
    if name not in FAIL_IN_EAGER_MODE.get(function, ())
]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("function", "name"), CASES)
def test_is_the_function_itself(function: Any, name: str, is_first: bool) -> None:
    compiled = aot_compile(function)
    if not is_first:
        compiled(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, expected = TRACERS[name](compiled), TRACERS[name](function)
    assert found.equal(expected) if isinstance(found, torch.Tensor) else found == expected
    assert compiled(X).equal(function(X)), "and it compiles outside"


def test_behind_inductor_the_process_goes_on() -> None:
    compiled = aot_compile(plain, fw_compiler="inductor")
    assert fake(compiled) == (3,)
    with FakeTensorMode():
        assert aot_compile(lambda: torch.ones(3) * 2, fw_compiler="inductor")().shape == (3,)
