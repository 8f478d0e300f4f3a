"""Compiled functions inside programs that `torch.compile` and `torch.export` take."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import Int8Weight, TwoTensor, aot_compile
from subclass_aot.testing import difference

pytestmark = pytest.mark.filterwarnings("ignore")  # Dynamo and inductor warn of parts that torch itself has deprecated


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Scaled:
    def __init__(self) -> None:
        self.scale = 3.0

    def apply(self, x: Any, *, shift: float = 0.0) -> Any:
        return (x * self.scale).sin() + shift


def program(x: Any, *, shift: float = 0.0) -> Any:
    return (x * x).sin() + shift


def quantized() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4))
    model[2].weight = nn.Parameter(Int8Weight.from_float(model[2].weight), requires_grad=False)
    return model


class Holder(nn.Module):
    """Holds a module and calls its compiled form, which is an attribute."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.compiled = aot_compile(inner)

    def forward(self, x: Any) -> Any:
        return self.compiled(x).relu()


CALLED = {"function": program, "method": Scaled().apply, "lambda": lambda x, shift=0.0: x.exp() * shift}
BACKENDS = ["eager", "aot_eager", "inductor"]


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("called", CALLED.values(), ids=CALLED)
def test_functions(called: Any, backend: str, warm: bool) -> None:
    inner = aot_compile(called)
    x, y = (torch.linspace(-1, 1, 6).requires_grad_() for _ in range(2))
    if warm:
        inner(x, shift=2.0)
    outer = torch.compile(lambda x: inner(x, shift=2.0).cos(), backend=backend, fullgraph=True)
    got, expected = outer(x), called(y, shift=2.0).cos()
    assert not difference(expected.detach(), got.detach(), rtol=1e-5, atol=1e-6)
    expected.sum().backward()
    got.sum().backward()
    assert not difference(y.grad, x.grad, rtol=1e-5, atol=1e-6)
    inner(x, shift=2.0)  # and it still works by itself


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [lambda: nn.Linear(4, 4), quantized], ids=["dense", "quantized"])
def test_modules_get_gradients(make: Any, backend: str, warm: bool) -> None:
    twin, x = make(), torch.rand(3, 4)
    holder = Holder(copy.deepcopy(twin))
    if warm:
        holder(x)
    outer = torch.compile(holder, backend=backend, fullgraph=True)
    got, expected = outer(x), twin(x).relu()
    assert not difference(expected.detach(), got.detach(), rtol=1e-5, atol=1e-6)
    expected.sum().backward()
    got.sum().backward()
    for ours, theirs in zip(holder.parameters(), twin.parameters(), strict=True):
        assert not difference(theirs.grad, ours.grad, rtol=1e-5, atol=1e-6)


def test_a_whole_becomes_one_graph() -> None:
    """The compiled function is looked into, and not called at a graph break."""
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    torch.compile(Holder(nn.Linear(4, 4)), backend=backend)(torch.rand(3, 4))
    (graph,) = graphs
    assert len(graph.graph.find_nodes(op="call_function", target=torch._C._nn.linear)) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_wrappers(backend: str) -> None:
    inner = aot_compile(program)
    x = TwoTensor(torch.rand(3), torch.rand(3))
    inner(x)
    outer = torch.compile(lambda x: inner(x) * 2, backend=backend, fullgraph=True)
    assert not difference(program(x) * 2, outer(x), rtol=1e-5, atol=1e-6)


def test_a_compiled_function_is_what_is_compiled() -> None:
    inner, x = aot_compile(program), torch.rand(3)
    assert not difference(program(x), torch.compile(inner, backend="eager", fullgraph=True)(x))


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("strict", [True, False])
def test_export(strict: bool, warm: bool) -> None:
    holder, x = Holder(nn.Linear(4, 4)), torch.rand(3, 4)
    if warm:
        holder(x)
    exported = torch.export.export(holder, (x,), strict=strict)
    assert set(exported.graph_signature.parameters) == {"inner.weight", "inner.bias"}
    assert len(exported.graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)) == 1
    assert not difference(holder(x), exported.module()(x))
