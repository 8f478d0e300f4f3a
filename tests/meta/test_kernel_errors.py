"""Errors that only kernels raise, raised where the operator is traced: Note [Errors of kernels]."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subclass_aot as sa
from subclass_aot import MetaTensor, TwoTensor, aot_compile
from subclass_aot.testing import check_compiled

x = torch.ones(4, 4)
ints = torch.ones(4, 4, dtype=torch.int64)
half = torch.ones(4, 4, dtype=torch.float16)

CALLS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "softmax of a dim": lambda: (lambda x: F.softmax(x, 5), (x,)),
    "log_softmax of a dim": lambda: (lambda x: F.log_softmax(x, -3), (x,)),
    "sort of a dim": lambda: (lambda x: x.sort(dim=2), (x,)),
    "product of two dtypes": lambda: (lambda x, y: x @ y, (x, half)),
    "linear layer of two dtypes": lambda: (lambda x, w: F.linear(x, w), (half, x)),
    "norm of two dtypes": lambda: (lambda x, w: F.layer_norm(x, (4,), w[0], w[0]), (x, half)),
    "convolution of two dtypes": lambda: (lambda x, w: F.conv2d(x[None, None], w[None, None]), (x, half)),
    "places of floats": lambda: (lambda x, i: x.index_select(0, i[0]), (x, x)),
    "places of two dims": lambda: (lambda x, i: x.index_select(0, i), (x, ints)),
    "parts of another size": lambda: (lambda x, y: x.select_scatter(y[:3, 0], 0, 0), (x, x)),
    "a slice of another size": lambda: (lambda x, y: torch.slice_scatter(x, y, 0, 0, 2), (x, x)),
    "rows of another size": lambda: (lambda x, i, y: x.index_add(0, i[0], y[:, :2]), (x, ints, x)),
    "values of another size": lambda: (lambda x, i, y: x.index_put((i[0],), y[:3, :3]), (x, ints, x)),
    "bits of floats": lambda: (lambda x: x & x, (x,)),
    "difference of booleans": lambda: (lambda x: x - x, (x > 0,)),
    "greatest of complex numbers": lambda: (lambda x: torch.maximum(x, x), (x + 1j,)),
    "an erf of complex numbers": lambda: (lambda x: torch.erf(x), (x + 1j,)),
    "a float written into integers": lambda: (lambda x: x.clone().mul_(0.5), (ints,)),
    "a complex number written into floats": lambda: (lambda x: x.clone().mul_(1j), (x,)),
    "no dim of no places": lambda: (lambda x: x[:, :0].amax(1), (x,)),
    "weights of three dims": lambda: (lambda w, i: F.embedding(i, w[None]), (x, ints)),
    "parts of a complex number": lambda: (lambda x, y: torch.complex(x, y), (x, ints)),
    "more draws than places": lambda: (lambda x: torch.multinomial(x, 9), (x,)),
    "no range": lambda: (lambda x: x.clone().uniform_(3, 1), (x,)),
    "an expanded result": lambda: (lambda x: torch.gather(x, 0, ints, out=torch.ones(1).expand(4, 4)), (x,)),
}


def catching(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a program that writes, catches the error, and goes on."""

    def program(x: Any, *others: Any) -> Any:
        before = x * 1
        try:
            function(x, *others)
        except Exception as error:
            return before, type(error).__name__, str(error)
        return before, "nothing", ""

    return program


@pytest.mark.every_case
@pytest.mark.parametrize("name", CALLS)
def test_the_program_catches_what_eager_mode_raises(name: str) -> None:
    function, args = CALLS[name]()
    program = catching(function)
    before, kind, text = program(*args)
    assert kind not in ("nothing", "DataDependentError")
    for dynamic in (False, True):
        found = aot_compile(program, fw_compiler="eager", dynamic=dynamic)(*args)
        assert found[1] == kind
    found = program(*(MetaTensor.like(each) for each in args))
    assert found[1] == kind


@pytest.mark.parametrize("name", ["softmax of a dim", "product of two dtypes", "bits of floats"])
def test_in_training(name: str) -> None:
    function, args = CALLS[name]()
    args = tuple(each.clone().requires_grad_(each.is_floating_point()) for each in args)
    check_compiled(catching(function), args)


def test_of_wrappers() -> None:
    def program(x: Any) -> Any:
        try:
            F.softmax(x, 5)
        except IndexError:
            return x * 2
        return x * 3

    check_compiled(program, (TwoTensor(torch.ones(4, 4), torch.zeros(4, 4)),))


@pytest.mark.usefixtures("fresh_dynamo")
def test_behind_torch_compile() -> None:
    def program(x: Tensor, w: Tensor) -> Any:
        torch._dynamo.graph_break()
        return x @ w

    for args in ((x, half), (x, ints)):
        with pytest.raises(RuntimeError, match="dtype"):
            torch.compile(program, backend="subclass_aot")(*args)


def test_squares_of_integers_in_place() -> None:
    """The rule of `pow` of a number is not that of `pow_`."""
    check_compiled(lambda x: x.clone().square_() + x.clone().pow_(3), (torch.arange(4),))
    with sa.meta("H100"):
        assert torch.ones(3, dtype=torch.int64).square_().dtype is torch.int64


def test_no_rule_of_another_device_asks_a_kernel_of_the_cpu() -> None:
    with sa.meta("H100"):
        assert torch.ones(4, 4).half().erf().dtype is torch.float16
        with pytest.raises(RuntimeError):
            torch.ones(4, 4) @ torch.ones(3, 3)


def test_nothing_is_drawn_or_warned_of() -> None:
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin = MetaTensor.like(half)
        torch.bernoulli(twin), twin.clone().uniform_(), twin.clone().normal_()
        (MetaTensor.like(x + 1j).abs(), twin.sum())
    assert torch.equal(state, torch.get_rng_state())


def test_large_tensors_are_not_made_for_an_error() -> None:
    """The error is the rule's own then."""
    with sa.meta(), pytest.raises(RuntimeError):
        torch.ones(1 << 40) + torch.ones(3)
