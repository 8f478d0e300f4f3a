"""Small linear passes over a graph without mutations."""

from __future__ import annotations

import operator

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot.operators import effects_of

_IDENTITIES = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})


def drop_identities(graph: fx.Graph) -> None:
    """Removes `detach` and `alias`: they mean something to autograd only, which a graph is below of."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _IDENTITIES:
            node.replace_all_uses_with(node.args[0], propagate_meta=False)
            graph.erase_node(node)


def drop_dead(graph: fx.Graph) -> None:
    """Removes what nobody reads. Draws of random numbers stay: eager makes them, and later draws depend on it."""
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op in ("call_function", "get_attr") and not has_effect(node):
            graph.erase_node(node)


def has_effect(node: fx.Node) -> bool:
    """True if a node does more than compute its result."""
    if node.op != "call_function" or node.target is operator.getitem or not _torch.is_overload(node.target):
        return False
    effects = effects_of(node.target)
    return effects.mutates or effects.random
