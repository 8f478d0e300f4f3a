from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import fx

from subclass_aot.backends.memory import Memory, makes_new

aten = torch.ops.aten


def graph_of(*calls: tuple[Callable[..., object], str]) -> dict[str, fx.Node]:
    """The nodes `x`, `y` and then `a`, `b`, ...: each calls a function on the nodes that are named."""
    graph = fx.Graph()
    nodes = {name: graph.placeholder(name) for name in ("x", "y")}
    for name, (func, arguments) in zip("abcd", calls, strict=False):
        nodes[name] = graph.call_function(func, tuple(nodes.get(a, 0) for a in arguments.split()))
    return nodes


def shares(memory: Memory, one: fx.Node, other: fx.Node) -> bool:
    return memory.root(one) is memory.root(other)


def test_views_are_on_the_memory_of_what_they_view() -> None:
    n = graph_of((aten.exp.default, "x"), (aten.t.default, "a"), (aten.t.default, "b"), (aten.t.default, "x"))
    memory = Memory(n.values())
    assert shares(memory, n["a"], n["b"]) and shares(memory, n["a"], n["c"])
    assert not shares(memory, n["a"], n["x"]) and shares(memory, n["d"], n["x"])
    assert memory.own == {n["a"], n["b"], n["c"]}  # views of an input are on memory of the user
    assert memory.whole == {n["a"]}


def test_parts_of_one_result_are_on_one_memory() -> None:
    n = graph_of((aten.exp.default, "x"), (aten.unbind.int, "a"), (lambda *_: None, "y"))
    graph = n["a"].graph
    parts = [graph.call_function(operator.getitem, (n["b"], i)) for i in range(2)]
    memory = Memory([*n.values(), *parts])
    assert shares(memory, parts[0], parts[1]) and shares(memory, parts[0], n["a"])
    assert memory.own == {n["a"], n["b"], *parts}


def test_an_unknown_function_may_return_any_of_its_arguments() -> None:
    n = graph_of((torch.sin, "x y"), (torch.sin, "y"))
    memory = Memory(n.values())
    assert shares(memory, n["a"], n["x"]) and shares(memory, n["b"], n["x"])
    assert not memory.own


@pytest.mark.parametrize("func", [aten.add.Tensor, aten.zeros.default, aten.select_backward.default])
def test_operators_that_make_new_memory(func: torch._ops.OpOverload) -> None:
    assert makes_new(func)


@pytest.mark.parametrize(
    "func",
    [
        aten.t.default,  # a view
        aten.add_.Tensor,  # a write
        aten.contiguous.default,  # perhaps its argument
        torch.ops.prims.sin.default,  # another library
    ],
)
def test_other_operators_are_not_said_to_make_new_memory(func: torch._ops.OpOverload) -> None:
    assert not makes_new(func)
