"""The copy of a recorded graph that others get."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Sequence

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot.operators import effects_of
from subclass_aot.passes.nodes import copied_node, has_no_result, new_node

_IDENTITIES = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})


def cleaned(
    nodes: Sequence[fx.Node], results: Iterable[object], without: Container[fx.Node] = ()
) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    """Copies recorded nodes to a new graph, placeholders first, and leaves out what nobody reads.

    Draws of random numbers stay: eager makes them, and later draws depend on it. So do operators without a result, such
    as `_assert_async`: eager fails there. `detach` and `alias` go: they mean
    something to autograd only, which a graph is below of.

    Args:
        nodes: The nodes, each after those that it reads.
        results: What is wanted; only nodes count.
        without: Nodes that are left out unless somebody reads them, though they do more than compute their result.

    Returns:
        The graph, without an output node, and the new nodes by the old ones.
    """
    live = {x for x in results if isinstance(x, fx.Node)}
    for node in reversed(nodes):
        if node in live or node not in without and has_effect(node):
            live.add(node)
            live.update(node.all_input_nodes)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in sorted(nodes, key=lambda node: node.op != "placeholder"):
        if node.op == "placeholder":
            copies[node] = new_node(graph, "placeholder", node.target, (), {}, None)
            copies[node].meta.update(node.meta)
        elif node not in live:
            continue
        elif node.target in _IDENTITIES:
            copies[node] = copies[node.all_input_nodes[0]]
            continue
        else:
            copies[node] = copied_node(graph, node, copies)
    return graph, copies


def has_effect(node: fx.Node) -> bool:
    """True if a node does more than compute its result."""
    if node.op != "call_function" or node.target is operator.getitem or not _torch.is_overload(node.target):
        return False
    effects = effects_of(node.target)
    return effects.mutates or effects.random or has_no_result(node)
