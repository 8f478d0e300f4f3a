"""The copy of a recorded graph that others get."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Sequence

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.passes.nodes import copied_node, is_backward, must_run, viewed_by, waits

_IDENTITIES = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})

_COPIED_FROM: dict[object, Callable[[fx.Node], object]] = {torch.ops.aten.copy.default: lambda node: node.args[1]}


def cleaned(
    nodes: Sequence[fx.Node], results: Iterable[object], without: Container[fx.Node] = ()
) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    """Copies recorded nodes to a new graph, placeholders first, and leaves out what nobody reads.

    Draws of random numbers stay: eager makes them, and later draws depend on it. So do operators that have an effect,
    and those without a result, such as `_assert_async`: eager fails there; and collectives: other ranks wait for them.
    `detach` and `alias` go: they are no-ops below autograd.

    What a collective gives is waited for where it is first read, so that what stands between runs meanwhile.
    Collectives themselves stay in their order, which has to be the same on all ranks.

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
    ordered = sorted(nodes, key=lambda node: node.op != "placeholder")
    has_waits = any(map(waits, {node.target: node for node in nodes}.values()))
    for node in _waits_late(ordered, live) if has_waits else ordered:
        if node.op == "placeholder":
            copies[node] = _torch.graphs.new_node(graph, "placeholder", node.target, (), {}, None)
            copies[node].meta.update(node.meta)
        elif node not in live:
            continue
        elif node.target in _IDENTITIES:
            copies[node] = copies[node.all_input_nodes[0]]
            continue
        else:
            copies[node] = copied_node(graph, node, copies)
    return graph, copies


def _waits_late(nodes: Iterable[fx.Node], live: Container[fx.Node]) -> Iterable[fx.Node]:
    """Yields the nodes, each wait where its result is first read, or at the end of its phase.

    Views and copies do not.
    """
    pending: dict[fx.Node, None] = {}
    before: fx.Node | None = None
    for node in nodes:
        if before is not None and pending and is_backward(node) != is_backward(before):
            yield from pending
            pending = {}
        before = node
        if node not in live:
            yield node
        elif waits(node) or (_COPIED_FROM.get(node.target) or viewed_by)(node) in pending:
            pending[node] = None
        else:
            for read in _put_off(node, pending) if pending else ():
                del pending[read]
                yield read
            yield node
    yield from pending


def _put_off(node: fx.Node, pending: Container[fx.Node]) -> list[fx.Node]:
    """Returns the waits that a node needs, each after those that it needs itself."""
    found: list[fx.Node] = []
    for read in node.all_input_nodes:
        if read in pending and read not in found:
            found += [each for each in _put_off(read, pending) if each not in found]
            found.append(read)
    return found


def has_effect(node: fx.Node) -> bool:
    """Returns True if a node does more than compute its result."""
    if node.op != "call_function" or node.target is operator.getitem or not _torch.operators.is_overload(node.target):
        return False
    effects = effects_of(node.target)
    return effects.mutates or effects.random or must_run(node)
