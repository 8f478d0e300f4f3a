"""Modes that are on in one call and off in the next, or change inside the program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.testing import difference, sharing


def program(x: Any) -> Any:
    return (x * x).sin()


def with_gradient(function: Any, x: Any) -> Any:
    out = function(x)
    return out, torch.autograd.grad((out * out).sum(), x)[0]


@pytest.fixture(autouse=True)
def _modes_as_before() -> Iterator[None]:
    yield
    torch.set_grad_enabled(True)
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_float32_matmul_precision("highest")


# -- grad mode ---------------------------------------------------------------------------------------------------------


def test_grad_mode_changes_inside(agree: Any, kind: Any) -> None:
    def inside(x: Any) -> Any:
        with torch.no_grad():
            factor = x * 2
        return x * factor, factor

    agree(inside, lambda: (kind(3, 4, grad=True),), lambda args, out: torch.autograd.grad(out[0].sum(), args[0]))


@pytest.mark.parametrize("leaf", [True, False])
def test_gradients_are_switched_on_inside(follow: Any, kind: Any, leaf: bool) -> None:
    def inside(x: Any) -> Any:
        assert x.requires_grad
        with torch.enable_grad():
            y = x * 2
            (force,) = torch.autograd.grad((y * y).sum(), x, retain_graph=True)
        return y, y * 3, force

    def use(function: Any, i: int) -> Any:
        root = kind(3, 4, grad=True)
        x = root if leaf else root * 1
        with torch.no_grad():
            out = function(x)
        assert not torch.is_grad_enabled() or not out[1].requires_grad
        return out, torch.autograd.grad((out[0] * out[0]).sum(), root)

    follow(inside, use)


@pytest.mark.parametrize("before", [True, False])
def test_grad_mode_is_left_changed(follow: Any, kind: Any, before: bool) -> None:
    def inside(x: Any) -> Any:
        y = x * 2
        torch.set_grad_enabled(not before)
        return y, x * 3

    def use(function: Any, i: int) -> Any:
        torch.set_grad_enabled(before)
        out = function(kind(3, 4, grad=True))
        return out, torch.is_grad_enabled()

    compiled = follow(inside, use, 3)
    assert not compiled.recompiles


@pytest.mark.parametrize("decorate", [torch.no_grad(), torch.enable_grad()])
def test_decorated_functions(follow: Any, kind: Any, decorate: Any) -> None:
    follow(decorate(program), lambda function, i: function(kind(3, 4, grad=True)))


# -- inference mode ----------------------------------------------------------------------------------------------------


def view(x: Any) -> Any:
    return x.t()[1:]


CASES = [
    (what, made, called)
    for what in (program, lambda x: x.mul_(2), view)
    for made in (True, False)
    for called in (True, False)
    if what is not view or made or not called  # of which the next test speaks
]


@pytest.mark.parametrize(("what", "made", "called"), CASES)
def test_inference_mode(follow: Any, kind: Any, what: Any, made: bool, called: bool) -> None:
    """The argument is made in inference mode or not, and so is the call."""

    def use(function: Any, i: int) -> Any:
        with torch.inference_mode(made):
            x = kind(3, 4)
        with torch.inference_mode(called):
            out = function(x)
        return x, out, out.is_inference()

    follow(what, use)


def test_view_of_a_normal_tensor_in_inference_mode(kind: Any) -> None:
    """Eager cannot make one of torch's `TwoTensor`."""
    x = kind(3, 4)
    compiled = aot_compile(view)
    for _ in range(2):
        with torch.inference_mode():
            out = compiled(x)
        assert not difference(view(x), out) and sharing([x, out])[0] == sharing([x, out])[1]


@pytest.mark.parametrize("mix", [torch.mul, torch.add])
def test_inference_tensor_beside_one_with_gradients(follow: Any, kind: Any, mix: Any) -> None:
    """Eager refuses it where the tensor would be kept for backward."""

    def use(function: Any, i: int) -> Any:
        with torch.inference_mode():
            x = kind(3, 4)
        w = kind(3, 4, grad=True)
        return with_gradient(lambda w: function(x, w), w)

    follow(mix, use)


# -- autocast ----------------------------------------------------------------------------------------------------------

NO_MATMUL = "its matrix products are of dense tensors"


@pytest.mark.unfit(affine=NO_MATMUL, pair=NO_MATMUL)
@pytest.mark.parametrize("inside", [True, False])
def test_autocast_with_gradients(follow: Any, kind: Any, inside: bool) -> None:
    """On and off between calls, in two dtypes; and switched inside the program, whatever it is outside."""

    def products(x: Any, w: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16) if inside else contextlib.nullcontext():
            low = x @ w.t()
            with torch.autocast("cpu", enabled=False):
                high = x @ w.t()
        return low, high

    def use(function: Any, i: int) -> Any:
        x, w = kind(3, 4, grad=True), kind(5, 4, grad=True, seed=1)
        with torch.autocast("cpu", (torch.bfloat16, torch.float16)[i // 2 % 2], enabled=i % 2 == 0):
            low, high = function(x, w)
        return low, high, torch.autograd.grad(low.float().sum() + high.sum(), [x, w])

    compiled = follow(products, use, 6)
    assert len(compiled.recompiles) == 2


@pytest.mark.unfit(affine=NO_MATMUL, pair=NO_MATMUL)
def test_backward_under_autocast_runs_as_it_was_traced(kind: Any) -> None:
    """Torch's advice is to go backward without autocast; a compiled function does so, even if it is on then."""
    x = kind(3, 4, grad=True)
    (expected,) = torch.autograd.grad((x @ x.t()).sum(), x)
    out = aot_compile(lambda x: x @ x.t())(x).sum()
    with torch.autocast("cpu", torch.bfloat16):
        (got,) = torch.autograd.grad(out, x)
    assert not difference(expected, got, strides=False)


def test_autocast_keeps_casts_of_parameters(follow: Any) -> None:
    """Autocast remembers the casts of parameters until its end. Those of a trace are nobody else's."""
    module = torch.nn.Linear(4, 5)

    def use(function: Any, i: int) -> Any:
        results = []
        with torch.autocast("cpu", torch.bfloat16):
            for call in (function, module, function):
                out = call(torch.ones(3, 4))
                results.append((out, torch.autograd.grad(out.float().sum(), list(module.parameters()))))
        return results

    follow(module, use)


# -- determinism -------------------------------------------------------------------------------------------------------


def test_deterministic_mode_fills_new_memory(follow: Any, kind: Any) -> None:
    def inside(x: Any) -> Any:
        return torch.empty(3), x * 2

    def use(function: Any, i: int) -> Any:
        torch.use_deterministic_algorithms(i % 2 == 0)
        torch.utils.deterministic.fill_uninitialized_memory = i < 2
        new, rest = function(kind(3, 4))
        return bool(new.isnan().all()) if i == 0 else None, rest

    compiled = follow(inside, use, 4)
    assert len(compiled.recompiles) == 2  # the mode, and whether memory is filled in it


@pytest.mark.filterwarnings("ignore:put_ does not have")
@pytest.mark.parametrize("warn_only", [True, False])
def test_operators_that_are_not_deterministic(follow: Any, warn_only: bool) -> None:
    """Refused in that mode, as in eager, which may be switched on after the first call."""

    def use(function: Any, i: int) -> Any:
        torch.use_deterministic_algorithms(i % 2 == 1, warn_only=warn_only)
        return function(torch.rand(5), torch.tensor([1, 2]))

    follow(lambda x, i: x.clone().put_(i, torch.zeros(2)), use, 4)


# -- defaults ----------------------------------------------------------------------------------------------------------


def test_default_dtype_changes(follow: Any, kind: Any) -> None:
    def inside(x: Any) -> Any:
        return x * 2, torch.tensor(2.5), torch.arange(4) / torch.arange(1, 5)

    def use(function: Any, i: int) -> Any:
        torch.set_default_dtype((torch.float32, torch.float64)[i % 2])
        return function(kind(3, 4))

    compiled = follow(inside, use, 4)
    assert len(compiled.recompiles) == 1 and "default dtype" in compiled.recompiles[0]


@pytest.mark.parametrize("scoped", [True, False])
def test_default_device_changes(follow: Any, kind: Any, scoped: bool) -> None:
    def inside(x: Any) -> Any:
        return x * x, torch.ones(4)

    def use(function: Any, i: int) -> Any:
        x = kind(3, 4, grad=True)
        if i % 2 and not scoped:
            torch.set_default_device("meta")
        with torch.device("meta") if i % 2 and scoped else contextlib.nullcontext():
            out, new = function(x)
            (gradient,) = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True)
        torch.set_default_device(None)
        return out, gradient.detach(), str(new.device)

    compiled = follow(inside, use, 4)
    assert len(compiled.recompiles) == 1 and "default device" in compiled.recompiles[0]


class CosineForSine(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (torch.cos if func is torch.sin else func)(*args, **(kwargs or {}))


def test_function_modes_change(follow: Any) -> None:
    mode = CosineForSine()

    def use(function: Any, i: int) -> Any:
        with mode if i % 2 else contextlib.nullcontext():
            return function(torch.arange(3.0))

    compiled = follow(lambda x: torch.sin(x), use, 4)
    assert len(compiled.recompiles) == 1


def test_precision_of_matrix_products(follow: Any) -> None:
    """Read by the kernels when they run."""

    def use(function: Any, i: int) -> Any:
        torch.set_float32_matmul_precision(("highest", "medium")[i % 2])
        x = torch.linspace(0, 1, 400).view(20, 20)
        return function(x, x.t())

    follow(torch.mm, use, 4)


# -- anomaly mode ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("check_nan", [True, False])
def test_anomaly_mode(follow: Any, kind: Any, check_nan: bool) -> None:
    def use(function: Any, i: int) -> Any:
        with torch.autograd.detect_anomaly(check_nan=check_nan):
            return with_gradient(function, kind(3, 4, grad=True))

    follow(program, use)


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected")
def test_anomaly_mode_finds_nan(follow: Any) -> None:
    def use(function: Any, i: int) -> Any:
        with torch.autograd.detect_anomaly():
            x = torch.zeros(3, requires_grad=True)
            torch.autograd.grad(function(x).sum() * 0, x)  # refused, in eager and here

    follow(torch.sqrt, use)


@pytest.mark.parametrize("make", [lambda: torch.ones(2), lambda: TwoTensor(torch.ones(2), torch.ones(2))])
def test_what_requires_grad_says_so_in_inference_mode_too(make: Any) -> None:
    def program(x: Any) -> Any:
        y = x * 2
        return (y + 1 if x.requires_grad else y + 2), y.requires_grad, x.is_leaf

    x = make().requires_grad_()
    compiled = aot_compile(program)
    for context in (torch.inference_mode, torch.no_grad, torch.inference_mode):
        with context():
            expected, got = program(x), compiled(x)
        assert not difference(expected[0], got[0]) and expected[1:] == got[1:]


def test_a_wrapper_of_what_requires_grad_made_in_inference_mode() -> None:
    x = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        made = aot_compile(lambda x: TwoTensor(x, x * 2))(x)
    assert not made.requires_grad and not made.a.requires_grad and made.a.data_ptr() == x.data_ptr()
