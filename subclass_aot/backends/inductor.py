"""Writes into inputs that a compiler is better not given.

Inductor (torch 2.13) takes a `clone` out of a graph even if what it copies is written before the copy is read: after
`old = x.clone(); x.copy_(y); y.copy_(old)` both are `y`. Where a graph writes what another written input was, it
returns the new values instead, and they are written once it has run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.node import Argument

from subclass_aot import _torch
from subclass_aot.operators import effects_of

aten: Any = torch.ops.aten
_COPIES: dict[Any, int] = {aten.clone.default: 0, aten._to_copy.default: 0, aten.copy.default: 1}
"""Operators whose result has the values of an argument, and the position of that."""


def without_entangled_writes(graph: fx.GraphModule) -> tuple[fx.GraphModule, list[int]]:
    """A graph whose writes a compiler may order as it likes.

    Args:
        graph: A forward graph, with its writes at the end.

    Returns:
        The graph itself and nothing; or one that returns new values after its other outputs, and the positions of the
        inputs to write them into.
    """
    writes = [n for n in graph.graph.nodes if n.target is aten.copy_.default and n.args[0].op == "placeholder"]
    written = {n.args[0] for n in writes}
    if not any(_origin(n.args[1]) in written - {n.args[0]} for n in writes):
        return graph, []
    graph = copy.deepcopy(graph)
    nodes = list(graph.graph.nodes)
    writes = [n for n in nodes if n.target is aten.copy_.default and n.args[0].op == "placeholder"]
    inputs = [n for n in nodes if n.op == "placeholder"]
    output = graph.graph.output_node()
    output.args = ((*output.args[0], *(n.args[1] for n in writes)),)  # type: ignore[misc]
    positions = [inputs.index(n.args[0]) for n in writes]
    for node in writes:
        graph.graph.erase_node(node)
    graph.recompile()
    return graph, positions


def then_write(run: Callable[[list[Any]], Any], positions: list[int]) -> Callable[[list[Any]], Any]:
    """`run`, whose last outputs are written into the inputs at `positions`."""

    def run_and_write(inputs: list[Any]) -> Any:
        targets = [inputs[i] for i in positions]
        outputs = list(run(inputs))
        for target, value in zip(targets, outputs[-len(positions) :], strict=True):
            target.copy_(value)
        return outputs[: -len(positions)]

    return run_and_write if positions else run


def _origin(node: Argument) -> Argument:
    """The node whose values, moved and copied, a node has."""
    while isinstance(node, fx.Node) and node.op == "call_function" and _torch.is_overload(node.target):
        viewed = next((v[0] for v in effects_of(node.target).returns_view_of if v is not None), None)
        position = _COPIES.get(node.target, viewed)
        if position is None:
            break
        node = node.args[position]
    return node
