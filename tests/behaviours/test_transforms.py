"""Transforms around and inside a compiled program, and copies of it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

import subclass_aot as sa
from subclass_aot import aot_compile
from subclass_aot.testing import difference

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script")  # torch's own, at its first use of forward mode


def program(x: Any) -> Any:
    return (x * x).sin()


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def forward_mode(function: Any, x: Any) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


TRANSFORMS = {
    "grad": lambda function, x: torch.func.grad(lambda x: function(x).sum())(x),
    "vmap": lambda function, x: torch.func.vmap(function)(x),
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (torch.ones_like(x),))[1],
    "jacrev": lambda function, x: torch.func.jacrev(function)(x),
    "forward_ad": forward_mode,
}


AROUND = {
    **TRANSFORMS,
    "vjp": lambda function, x: torch.func.vjp(function, x)[1](torch.ones_like(x))[0],
    "jacfwd": lambda function, x: torch.func.jacfwd(function)(x),
    "hessian": lambda function, x: torch.func.hessian(lambda x: function(x).sum())(x),
    "grad of vmap": lambda function, x: torch.func.grad(lambda x: torch.func.vmap(function)(x).sum())(x),
}


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("transform", AROUND.values(), ids=AROUND)
def test_transform_around_runs_the_function_itself(transform: Any, warm: bool) -> None:
    compiled = aot_compile(program)
    x = torch.rand(3, 4)
    if warm:
        compiled(x)
    with pytest.warns(UserWarning, match=r"(?s)^program was compiled.*aot_compile\(torch.func.grad\(fn\)\)") as caught:
        got = transform(compiled, x)
    (said,) = [w for w in caught if "was compiled" in str(w.message)]
    assert said.filename == __file__
    assert not difference(transform(program, x), got)
    transform(compiled, x)  # says it once: a second warning would be an error
    assert "calls inside a transform" in compiled.explain() and "aot_compile(torch.func.grad(fn))" in compiled.explain()
    assert not difference(program(x), compiled(x))
    assert "calls inside a transform" in compiled.explain() and "1 signature," in compiled.explain()


def test_nothing_is_said_of_transforms_that_were_not_there() -> None:
    compiled = aot_compile(program)
    assert "transform" not in compiled.explain()
    compiled(torch.rand(3))
    assert "transform" not in compiled.explain()


@pytest.mark.filterwarnings("ignore:program was compiled")
def test_forward_mode_around_wrappers(kind: Any) -> None:
    compiled = aot_compile(program)
    x = kind(3, 4)
    compiled(x)
    try:
        expected = forward_mode(program, x)
    except Exception as error:  # then eager mode has no forward mode for the class, and it says why
        with pytest.raises(type(error)) as found:
            forward_mode(compiled, x)
        assert str(found.value) == str(error)
        return
    assert not difference(expected, forward_mode(compiled, x))


@pytest.mark.filterwarnings("ignore:program was compiled")
@pytest.mark.parametrize("grad", [True, False])
def test_call_beside_what_is_transformed(grad: bool) -> None:
    compiled = aot_compile(program)
    y = torch.rand(3, requires_grad=grad)
    for _ in range(2):
        got = torch.func.grad(lambda x: (x * compiled(y)).sum())(torch.ones(3))
        assert not difference(program(y), got)
        compiled(y)


@pytest.mark.filterwarnings("ignore:Sequential was compiled")
def test_functional_call_and_a_transform_around() -> None:
    holder, x = Holder(), torch.ones(3, 4)
    parameters = {name: p.detach() for name, p in holder.named_parameters()}

    def loss(module: Any) -> Any:
        return lambda parameters: torch.func.functional_call(module, parameters, (x,)).square().sum()

    holder(x)
    expected = torch.func.grad(loss(holder.inner))({n.removeprefix("inner."): p for n, p in parameters.items()})
    got = torch.func.grad(loss(holder))(parameters)
    for name, gradient in expected.items():
        assert not difference(gradient, got["inner." + name])


@pytest.mark.parametrize("name", [name for name in TRANSFORMS if name != "forward_ad"])
def test_transform_inside(follow: Any, name: str) -> None:
    def inside(x: Any) -> Any:
        return TRANSFORMS[name](program, x)

    def use(function: Any, i: int) -> Any:
        x = torch.rand(3, 4, requires_grad=True)
        out = function(x)
        return out, torch.autograd.grad((out * out).sum(), x)

    follow(inside, use)


@pytest.mark.parametrize("name", ["grad", "vmap"])
def test_transform_inside_on_wrappers(follow: Any, kind: Any, name: str) -> None:
    follow(lambda x: TRANSFORMS[name](program, x), lambda function, i: function(kind(3, 4)))


def test_functional_call_inside(follow: Any) -> None:
    module = network()

    def use(function: Any, i: int) -> Any:
        parameters = {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}
        out = function(parameters, torch.ones(3, 4))
        return out, torch.autograd.grad(out.sum(), list(parameters.values()))

    follow(lambda parameters, x: torch.func.functional_call(module, parameters, (x,)), use)


class Holder(torch.nn.Module):
    """Holds a module and its compiled form."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.compiled = aot_compile(self.inner)

    def forward(self, x: Any) -> Any:
        return self.compiled(x)


def test_functional_call_around() -> None:
    holder, x = Holder(), torch.ones(3, 4)
    holder(x)
    twice = {name: 2 * p.detach() for name, p in holder.named_parameters()}
    expected = torch.func.functional_call(holder.inner, {n.removeprefix("inner."): p for n, p in twice.items()}, x)
    assert not difference(expected, torch.func.functional_call(holder, twice, x))


def test_compiled_function_inside_another(follow: Any, kind: Any) -> None:
    inner = aot_compile(program)

    def use(function: Any, i: int) -> Any:
        x = kind(3, 4, grad=True)
        if i == 1:
            inner(x)
        out = function(function(x))
        return out, torch.autograd.grad((out * out).sum(), x)

    follow(lambda x: inner(x) * 2, use, 3)


# -- copies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copy_has_parameters_of_its_own(copied: Any) -> None:
    compiled, x = aot_compile(network(), cache_limit=3), torch.ones(3, 4)
    assert sa.tensors.NF4Weight  # whose operators are among what the trace knows from here on
    before = compiled(x).detach()
    twin = copied(compiled)
    with torch.no_grad():
        for p in compiled.fn.parameters():
            p.zero_()
    assert not difference(before, twin(x).detach()) and not compiled(x).any()
    (gradient,) = torch.autograd.grad(twin(x).sum(), twin.fn[2].bias)
    assert gradient.equal(torch.full((2,), 3.0)) and not twin.recompiles


def test_copy_of_a_module_that_holds_it() -> None:
    holder, x = Holder(), torch.ones(3, 4)
    before = holder(x)
    twin = copy.deepcopy(holder)
    with torch.no_grad():
        for p in twin.inner.parameters():
            p.zero_()
    assert not twin(x).any() and not difference(before.detach(), holder(x).detach())
    assert twin.compiled.fn is twin.inner


# -- .grad -------------------------------------------------------------------------------------------------------------


def backward_inside(x: Any) -> Any:
    (x * x).sum().backward()
    return x * 2


def assigns(x: Any) -> Any:
    x.grad = None
    return x * 2


def reads(x: Any) -> Any:
    return x.detach() if x.grad is None else x.detach() - x.grad


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("inside", [backward_inside, assigns, reads])
def test_gradient_attribute_inside(kind: Any, inside: Any, present: bool) -> None:
    x, y = kind(3, 4, grad=True), kind(3, 4, grad=True)
    if present:
        x.sum().backward()
        y.sum().backward()
    compiled = aot_compile(inside)
    for _ in range(3):
        assert not difference(inside(x), compiled(y))
        assert (x.grad is None) == (y.grad is None) and (x.grad is None or not difference(x.grad, y.grad))
