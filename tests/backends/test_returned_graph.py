"""A compiler that returns the graph it was given: the graph runs, and is what it was for whoever works with it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func, nop
from torch import fx

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.backends.returned_graph import run_of
from subclass_aot.base import _torch

RETURNED: dict[str, Callable[[fx.GraphModule], Any]] = {
    "itself": lambda graph: graph,
    "boxed": make_boxed_func,
    "its forward": lambda graph: graph.forward,
    "boxed forward": lambda graph: make_boxed_func(graph.forward),
}


def program(x: Any, y: Any) -> Any:
    first, rest = torch.split(x * 2, [1, 2])
    return (first + y).relu(), [rest[:, :1].sin(), x.shape[0]], x.new_full((2,), 3)


@pytest.mark.parametrize("name", RETURNED)
def test_it_computes_what_the_function_does(name: str) -> None:
    compiled = aot_compile(program, fw_compiler=lambda graph, inputs: RETURNED[name](graph))
    for size in (3, 3, 3):
        x, y = torch.randn(size, 4, requires_grad=True), TwoTensor(torch.randn(4), torch.randn(4))
        expected, got = program(x, y), compiled(x, y)
        assert torch.equal(got[0].a, expected[0].a) and torch.equal(got[1][0], expected[1][0]) and got[1][1] == size
        assert torch.equal(got[2], expected[2])
        torch.autograd.backward([got[1][0]], [torch.ones(2, 1)])
        found, x.grad = x.grad, None
        torch.autograd.backward([expected[1][0]], [torch.ones(2, 1)])
        assert found is not None and x.grad is not None and torch.equal(found, x.grad)


def graph_of(function: Callable[..., Any]) -> fx.GraphModule:
    return _torch.graphs.as_plain_module(fx.symbolic_trace(function))


def test_code_is_not_generated_for_a_call() -> None:
    module = graph_of(lambda x, y: operator.add(x, y) * 2)
    inputs = [torch.ones(2), torch.ones(2)]
    assert run_of(module)(inputs).tolist() == [4, 4] and not inputs
    assert _torch.graphs.waits_for_code(module) and nop(module, []).__wrapped__ is module
    assert _torch.aotautograd.unboxed(make_boxed_func(module)) is module


def test_a_function_around_a_graph_is_none_of_them() -> None:
    module = graph_of(lambda x: x * 2)

    @functools.wraps(module)
    def around(inputs: list[Any]) -> Any:
        return module(*inputs)

    around._boxed_call = True  # type: ignore[attr-defined]
    assert _torch.aotautograd.unboxed(around) is around


def changed(module: fx.GraphModule) -> None:
    for node in module.graph.find_nodes(op="call_function", target=operator.mul):
        node.args = (node.args[0], 3)
    module.recompile()


CHANGES: dict[str, Callable[[fx.GraphModule], object]] = {
    "a hook": lambda module: module.register_forward_hook(lambda module, args, result: result + 1),
    "a hook before": lambda module: module.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    "a graph that was changed": changed,
    "a method": lambda module: setattr(module, "forward", lambda x: x - 1),
    "compiled": lambda module: module.compile(backend="eager"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("ran", [False, True])
def test_what_is_changed_later_counts(name: str, ran: bool) -> None:
    module = graph_of(lambda x: x * 2)
    run, x = run_of(module), torch.ones(2)
    assert not ran or torch.equal(run([x]), x * 2)
    CHANGES[name](module)
    assert torch.equal(run([x]), module(x)) and (name == "compiled" or not torch.equal(module(x), x * 2))


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.list = torch.nn.ParameterList([torch.ones(2)])
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x: Any, scale: Any = 2, *, more: Any = None) -> Any:
        return self.layer(x) * self.list[0] * scale


def test_attributes_are_read_when_it_runs() -> None:
    root = torch.nn.Module()
    root.list = torch.nn.ParameterList([torch.ones(2)])
    graph = fx.Graph()
    product = graph.call_function(operator.mul, (graph.get_attr("list.0"), graph.placeholder("x")))
    graph.output((product,))
    module = _torch.graphs.as_plain_module(fx.GraphModule(root, graph))
    run = run_of(module)
    assert run([torch.ones(2)])[0].tolist() == [1, 1] and _torch.graphs.waits_for_code(module)
    setattr(module.list, "0", torch.nn.Parameter(torch.full((2,), 3.0)))
    assert run([torch.ones(2)])[0].tolist() == [3, 3]


def test_other_graphs_are_called_as_they_are() -> None:
    module, x = graph_of(Holder()), torch.ones(1, 2)
    assert torch.equal(run_of(module)([x]), module(x))
    tables = graph_of(lambda x: {"one": x * 2})
    assert run_of(tables)([x])["one"].tolist() == [[2, 2]]
