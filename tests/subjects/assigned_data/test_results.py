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
from tests.subjects.assigned_data.test_listener import Own, OwnParameter, counted, doubles, of, shares


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


@pytest.mark.parametrize("cls", [None, Own, OwnParameter])
@pytest.mark.parametrize("program", [doubles, before_and_after, reads_it_later, keeps_the_old, shares])
def test_gradients(program: Callable[..., Any], cls: type | None) -> None:
    found = []
    for run in (program, aot_compile(program)):
        x, y = of(cls, grad=True), counted(grad=program is keeps_the_old)
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


class Codes(nn.Parameter):
    """Quantizes itself."""

    def __new__(cls, data: torch.Tensor, requires_grad: bool = False) -> Codes:
        made = torch.Tensor._make_subclass(cls, data, requires_grad)
        made.scale = None
        return made

    def quantize(self, bits: int) -> None:
        largest = self.data.abs().amax(1, keepdim=True)
        self.scale = largest / (127 if bits == 8 else 7)
        codes = (self.data / self.scale).round().to(torch.int8)
        if bits == 4:
            codes = ((codes[:, ::2] & 15) | (codes[:, 1::2] << 4)).to(torch.uint8).view(-1, 1)
        self.data = codes


class State:
    codes: torch.Tensor | None = None


class Quantizing(nn.Linear):
    """Quantizes its weight where that was not done, casts its bias, and gives the weight its codes after each call."""

    def __init__(self, bits: int, before: bool, size: int = 8) -> None:
        super().__init__(size, size)
        self.bits, self.state = bits, State()
        self.weight = Codes(self.weight.data)
        if before:
            self.weight.quantize(bits)
            self.state.codes = self.weight.data

    def dense(self) -> Any:
        codes = self.weight.data
        if self.bits == 4:
            pairs = codes.view(self.out_features, -1)
            halves = torch.stack([pairs & 15, pairs >> 4], -1).view(self.out_features, -1).to(torch.int8)
            codes = torch.where(halves > 7, halves - 16, halves)
        return codes * self.weight.scale

    def forward(self, x: Any) -> Any:
        if self.bias.dtype != x.dtype:
            self.bias.data = self.bias.data.to(x.dtype)
        if self.weight.is_floating_point():
            self.weight.quantize(self.bits)
        if self.state.codes is None:
            self.state.codes = self.weight.data
        out = nn.functional.linear(x, self.dense().to(x.dtype), self.bias)
        self.weight.data = self.state.codes
        return out


def quantizing(bits: int, before: bool, tied: bool) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(Quantizing(bits, before), nn.ReLU(), Quantizing(bits, before))
    if tied:
        made[2].weight, made[2].state = made[0].weight, made[0].state
    return made


def told_of(run: Any, model: Any, grad: bool, dtype: torch.dtype) -> list[Any]:
    """What calls give, and what the model is afterwards."""
    told: list[Any] = []
    for rows in (3, 3, 5):
        x = torch.arange(rows * 8, dtype=dtype).view(rows, 8).div(7).requires_grad_(grad)
        with torch.set_grad_enabled(grad):
            out = run(x)
        if grad:
            out.sum().backward()
        told += [out.tolist(), x.grad if x.grad is None else x.grad.tolist()]
    for layer in (model[0], model[2]):
        weight, codes = layer.weight, layer.state.codes
        told += [type(weight), weight.dtype, weight.tolist(), weight.requires_grad, weight.scale.tolist()]
        told += [codes.untyped_storage().data_ptr() == weight.untyped_storage().data_ptr(), codes.tolist()]
        told += [layer.bias.dtype, layer.bias.tolist(), layer.bias.grad if not grad else layer.bias.grad.tolist()]
    return told


@pytest.mark.parametrize("door", ["aot_compile", "dynamic", "torch.compile"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.usefixtures("fresh_dynamo")
def test_parameters_that_quantize_themselves(
    bits: int, before: bool, tied: bool, dtype: torch.dtype, grad: bool, door: str
) -> None:
    model, compiled_model = quantizing(bits, before, tied), quantizing(bits, before, tied)
    if door == "torch.compile":
        compiled: Any = torch.compile(compiled_model, backend="subclass_aot")
    else:
        compiled = aot_compile(compiled_model, dynamic=door == "dynamic" or None)
    assert told_of(compiled, compiled_model, grad, dtype) == told_of(model, model, grad, dtype)
