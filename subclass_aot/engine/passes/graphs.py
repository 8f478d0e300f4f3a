"""A graph as a whole: copying it, and making it one for tensors of any strides."""

from __future__ import annotations

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.engine.passes.nodes import copied_node
from subclass_aot.errors import CompilerResultError

aten = torch.ops.aten


def copied_graph(graph: fx.GraphModule) -> fx.GraphModule:
    """Copies a graph and what its nodes say. Its constants are shared."""
    copy, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.graph.nodes:
        copies[node] = copied_node(copy, node, copies)
    made = _torch.graphs.make_graph_module(graph, copy, type(graph).__name__)
    made.meta.update(graph.meta)
    return made


def take_any_strides(graph: fx.GraphModule) -> None:
    """Changes a graph so that it takes tensors of other strides than it was recorded with, and may make such itself.

    What was `reshape` in the program is a view where strides allow one, and was recorded as that.
    """
    for view in (aten.view.default, aten._unsafe_view.default):
        for node in graph.graph.find_nodes(op="call_function", target=view):
            node.target = aten.reshape.default
    graph.recompile()


def check_inputs(found: int, wanted: int) -> None:
    """Checks how many inputs the forward graph of a partitioner has.

    Raises:
        CompilerResultError: It has others than the call.
    """
    if found != wanted:
        raise CompilerResultError(
            f"The forward graph of the partitioner has {found} inputs, but the call has {wanted} "
            "leaves. A partitioner must keep every input of forward."
        )
