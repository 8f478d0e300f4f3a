"""A default dtype that a program sets for a block, or leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from subclass_aot import TwoTensor, aot_compile, compile_joint, export_forward, load, trace_joint
from subclass_aot.errors import ExportError, TraceError


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)


@contextmanager
def default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def whole() -> Tensor:
    return torch.arange(1, 5)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "ones": lambda x: x.sum() * torch.ones(3),
    "full": lambda x: torch.full((2,), 2.5),
    "arange": lambda x: torch.arange(0, 1, 0.25),
    "linspace": lambda x: torch.linspace(0, 1, 4),
    "a literal": lambda x: torch.tensor([1.5, 2.5]) * x.sum(),
    "a division": lambda x: whole() / (whole() + 1),
    "a root": lambda x: whole().sqrt(),
    "a power": lambda x: whole() ** 0.5,
    "a number": lambda x: (x > 0) * 1.5,
    "a choice": lambda x: torch.where(x > 0, 1, 2.5),
    "a list": lambda x: torch._foreach_div([whole()], [whole() + 1])[0],
    "out": lambda x: torch.div(whole(), whole(), out=torch.empty(4)),
    "draws": lambda x: torch.rand(3) + torch.bernoulli(torch.full((3,), 0.5)),
    "a layer": lambda x: torch.nn.Linear(2, 2)(torch.ones(1, 2)).detach(),
    "windows": lambda x: torch.hann_window(4) + torch.kaiser_window(4),
    "complex numbers": lambda x: torch.complex(torch.ones(2), torch.ones(2)) + whole()[:2] * 1j,
    "what the default is": lambda x: x * (2 if torch.get_default_dtype() is torch.float64 else 3),
    "a block in it": lambda x: (inside(lambda x: torch.ones(2), torch.bfloat16)(x)[0], torch.ones(2)),
}


def inside(program: Callable[[Any], Any], dtype: torch.dtype = torch.float64) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        with default(dtype):
            result = program(x)
        return *(result if isinstance(result, tuple) else (result,)), torch.ones(2), whole() / 2

    return call


def equal(expected: Any, got: Any) -> None:
    for x, y in zip(expected, got, strict=True):
        if isinstance(x, TwoTensor):
            equal((x.a, x.b), (y.a, y.b))
        else:
            torch.testing.assert_close(y, x, rtol=0, atol=0)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_a_block(name: str, dynamic: bool | None) -> None:
    program = inside(PROGRAMS[name])
    compiled = aot_compile(program, dynamic=dynamic)
    for call, size in enumerate((3, 3, 5)):
        found = []
        for function in (program, compiled):
            torch.manual_seed(call)
            x = torch.rand(size, requires_grad=True)
            results = function(x)
            ends = [r for r in results if r.requires_grad]
            gradients = torch.autograd.grad([r.sum() for r in ends], x) if ends else ()
            found.append([*results, *gradients, torch.get_rng_state()])
        equal(*found)
    assert torch.get_default_dtype() is torch.float32


def test_of_wrappers() -> None:
    program = inside(lambda x: x * torch.ones(2) + whole()[:2] / 3)
    x = TwoTensor(torch.ones(2), torch.ones(2))
    equal(program(x), aot_compile(program)(x))


def test_behind_torch_compile(fresh_dynamo: None) -> None:
    program = inside(lambda x: x.sum() * torch.ones(2) + whole()[:2] / 3)
    equal(program(torch.ones(2)), torch.compile(program, backend="subclass_aot")(torch.ones(2)))


def test_a_block_in_a_hook() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda gradient: gradient * inside(lambda _: torch.ones(3))(x)[0].double().sqrt().float())
        return y

    for dtype in (torch.float32, torch.float64):
        x = torch.ones(3, requires_grad=True)
        with default(dtype):
            equal(*(torch.autograd.grad(f(x).sum(), x) for f in (program, aot_compile(program))))


def leaves(x: Any) -> Any:
    before = whole() / 3
    torch.set_default_dtype(torch.float64)
    return x.sin() * torch.ones(3) * before.sum(), before


def test_what_is_left_behind(tmp_path: Path) -> None:
    """Each call leaves it, the first one too, in which it is compiled."""
    compiled = aot_compile(leaves)
    compiled(torch.ones(3))
    torch.set_default_dtype(torch.float32)
    compiled.save(tmp_path / "file")
    joint = compile_joint(trace_joint(leaves, torch.ones(3))).bind(leaves)
    for function in (aot_compile(leaves), compiled, load(tmp_path / "file", trust=True), joint):
        found = []
        for each in (leaves, function):
            found.append([*each(torch.ones(3)), torch.tensor(torch.get_default_dtype() is torch.float64)])
            torch.set_default_dtype(torch.float32)
        equal(*found)
    assert not compiled.recompiles
    with pytest.raises(ExportError, match="another default dtype"):
        export_forward(compiled, (torch.ones(3),))
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.filterwarnings("ignore:(?s).*is called inside torch.func.grad")
def test_what_is_left_behind_inside_a_transform() -> None:
    found = []
    for function in (leaves, aot_compile(leaves)):
        gradient = torch.func.grad(lambda x, f=function: f(x)[0].sum())(torch.ones(3))
        found.append([gradient, torch.tensor(torch.get_default_dtype() is torch.float64)])
        torch.set_default_dtype(torch.float32)
    equal(*found)


def test_a_trace_that_fails_leaves_what_was() -> None:
    """What the function raises itself leaves what eager mode leaves."""

    def fails(error: Exception) -> Any:
        torch.set_default_dtype(torch.float64)
        raise error

    for error, left in ((TraceError("no"), torch.float32), (ValueError("no"), torch.float64)):
        try:
            with pytest.raises(type(error), match="no"):
                aot_compile(lambda x, error=error: fails(error))(torch.ones(3))
            assert torch.get_default_dtype() is left
        finally:
            torch.set_default_dtype(torch.float32)


def test_second_derivatives_are_of_the_same_function() -> None:
    """It is called once more, with the default dtype that it was called with, and leaves none then."""
    found = []
    for function in (leaves, aot_compile(leaves, double_backward=True)):
        torch.set_default_dtype(torch.float32)
        x = torch.ones(3, requires_grad=True)
        result, _ = function(x)
        torch.set_default_dtype(torch.float16)
        (first,) = torch.autograd.grad(result.sum(), x, create_graph=True)
        found.append([result, first, *torch.autograd.grad(first.sum(), x)])
        assert torch.get_default_dtype() is torch.float16
    equal(*found)
