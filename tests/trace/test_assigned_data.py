"""Calls that give inputs other memory: gradients, modules, steps by hand and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot import aot_compile
from subclass_aot.errors import DoubleBackwardError
from tests.graph.listeners.test_assigned_data import counted, doubles, shares


def before_and_after(x: Any, y: Any) -> Any:
    z = x * y
    x.data = x.data * 2
    return z + x * y * y


def reads_it_later(x: Any, y: Any) -> Any:
    """Autograd keeps the tensor itself, so backward reads what it holds then."""
    z = x * x * x
    x.data = x.data * 2
    return z


def keeps_the_old(x: Any, y: Any) -> Any:
    z = y * x.data
    x.data = x.data * 2
    return z * z + x


@pytest.mark.parametrize("program", [doubles, before_and_after, reads_it_later, keeps_the_old, shares])
def test_gradients(program: Callable[..., Any]) -> None:
    found = []
    for run in (program, aot_compile(program)):
        x, y = counted(grad=True), counted(grad=program is keeps_the_old)
        for _ in range(2):
            run(x, y).sum().backward()
        found.append([t.tolist() if t is not None else t for t in (x.detach(), x.grad, y.grad)])
    assert found[0] == found[1]


def test_a_write_before_backward_is_seen() -> None:
    x = counted(grad=True)

    def program(x: Any, y: Any) -> Any:
        x.data = x.data * 2
        return (x * x * y).sum()

    loss = aot_compile(program)(x, counted())
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


class Casting(nn.Module):
    """Its bias is of the dtype of what came last."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 3))
        self.bias = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x: Any) -> Any:
        if self.bias.dtype != x.dtype:
            self.bias.data = self.bias.data.to(x.dtype)
        return x @ self.weight.to(x.dtype) + self.bias


def test_a_module() -> None:
    module = Casting()
    bias, compiled = module.bias, aot_compile(module)
    for dtype in (torch.float32, torch.float64, torch.float64, torch.float32):
        result = compiled(torch.ones(2, 3, dtype=dtype))
        result.sum().backward()
        assert result.dtype is dtype and module.bias is bias and bias.dtype is dtype
    assert module.weight.grad is not None and module.weight.grad.tolist() == [[8.0] * 3] * 3


def test_a_step_by_hand() -> None:
    found = []
    for compile in (lambda fn: fn, aot_compile):
        parameter = nn.Parameter(torch.ones(3))

        def step(y: Any, parameter: nn.Parameter = parameter) -> Any:
            parameter.grad = None
            loss = (parameter * y * parameter).sum()
            loss.backward()
            assert parameter.grad is not None
            parameter.data = parameter.data - 0.1 * parameter.grad
            return loss.detach()

        run = compile(step)
        found.append([run(counted()).tolist() for _ in range(3)] + parameter.tolist())
    assert found[0] == found[1]


def test_files(tmp_path: Path) -> None:
    compiled, path, x = aot_compile(doubles), tmp_path / "assigns", counted()
    compiled(counted(), counted(4))
    compiled.save(path)
    sa.load_compiled(path, trust=True)(x, counted(4))
    assert x.tolist() == [2, 4, 6, 8]


def test_second_derivatives_are_refused() -> None:
    x = counted(grad=True)
    result = aot_compile(before_and_after, double_backward=True)
    with pytest.raises(DoubleBackwardError, match=r"assigns to args\[0\].data"):
        torch.autograd.grad(result(x, counted()).sum(), x, create_graph=True)


def casts(x: Any, y: Any) -> Any:
    if x.dtype != y.dtype:
        x.data = x.data.to(y.dtype)
    return x * y


def grows(x: Any, y: Any) -> Any:
    x.data = torch.cat([x.data, x.data])
    return x * x


def reshapes(x: Any, y: Any) -> Any:
    x.data = x.data.view(1, -1)
    return x * y


def takes_another(x: Any, y: Any) -> Any:
    x.data = y.repeat(2)
    return x.sin()


def goes_backward_inside(x: Any, y: Any) -> Any:
    x.data = x.data.to(y.dtype)
    (x * y).sum().backward()
    return y + 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("program", [casts, grows, reshapes, takes_another, goes_backward_inside])
def test_gradients_of_another_size_or_dtype(program: Callable[..., Any], dtype: torch.dtype, dynamic: bool) -> None:
    found = []
    for run in (program, aot_compile(program, dynamic=dynamic)):
        told: list[Any] = []
        for size in (3, 4, 3):
            x, y = counted(size, dtype, grad=True), counted(size, torch.float32)
            for _ in range(2):
                result = run(x, y)
                if result.requires_grad:
                    result.sum().backward()
                assert x.grad is not None
                told += [x.dtype, x.tolist(), x.grad.dtype, x.grad.tolist(), x._version]
                x.grad, result = None, None  # or autograd's node of `x` lives on, and knows what it was
        found.append(told)
    assert found[0] == found[1]
