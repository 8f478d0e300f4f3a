"""Queries about a node of a graph, and how one is made."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, Protocol

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.meta.symbols import is_symbolic

_aten = torch.ops.aten


class Copies(Protocol):
    """The copies of nodes, by node."""

    def __getitem__(self, node: fx.Node, /) -> fx.Node: ...


def copied_node(graph: fx.Graph, node: fx.Node, copies: Copies, other_meta: dict[str, Any] | None = None) -> fx.Node:
    """Copies a node of another graph, as `Graph.node_copy` does.

    Args:
        graph: The graph that gets the copy.
        node: The node.
        copies: The copies of the nodes that it reads.
        other_meta: What the copy has as `meta`, if that is not what the node has.
    """
    args, kwargs = _torch.graphs.arguments_with(node, copies.__getitem__)
    copy = _torch.graphs.new_node(graph, node.op, node.target, args, kwargs, node.name)
    if node.type is not None:
        copy.type = node.type
    meta: Any = node.meta if other_meta is None else other_meta
    if type(meta) is dict:
        copy.meta.update(meta)
    else:  # it has values that are made when somebody reads one
        object.__setattr__(copy, "meta", meta.copied_into(graph))  # past a search for the node in its graph
    return copy


class _Known(NamedTuple):
    """What is so of an operator whatever it is called with; queries come for each node, and several times.

    Attributes:
        viewed: The argument that it gives a view of.
        random: Whether it may draw random numbers.
        must_run: Whether it runs though nobody reads its result, as its schema and its name say.
    """

    viewed: tuple[int, str] | None
    random: bool
    must_run: bool


_known: dict[int, _Known] = {}
"""By the id of an operator, which `effects_of` has for good."""


def _known_of(node: fx.Node) -> _Known | None:
    """Finds out what is so of the operator that a node runs; None if it runs none."""
    if node.op != "call_function" or not _torch.operators.is_overload(node.target):
        return None
    effects, operation = effects_of(node.target), node.target
    must_run = not effects.returns or operation.namespace in _torch.collectives.COLLECTIVES
    viewed = effects.returns_view_of[0] if effects.returns_view_of else None
    found = _known[id(operation)] = _Known(viewed, effects.random, must_run)
    return found


def viewed_by(node: fx.Node) -> fx.Node | None:
    """Returns the node that a node is a view of; None for one that computes something."""
    known = _known.get(id(node.target)) or _known_of(node)
    if known is None or known.viewed is None:
        return None
    found = argument_at(known.viewed, node.args, node.kwargs)
    return found if isinstance(found, fx.Node) else None


def viewed_node(node: fx.Node) -> fx.Node | None:
    """Returns the node whose memory a node has, also as one of several views; None if its memory is new."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        producer: Any = node.args[0]
        if not isinstance(producer, fx.Node):
            return None
        return producer if producer.target is not operator.getitem and viewed_by(producer) is not None else None
    if node.target is _aten._unsafe_view.default:
        return argument_at((0, "self"), node.args, node.kwargs)  # type: ignore[no-any-return]
    return viewed_by(node)


def is_symint(node: fx.Node) -> bool:
    """Returns whether the value of a node is a symbolic number."""
    return "spec" not in node.meta and is_symbolic(dict.get(node.meta, "val"))


def is_backward(node: fx.Node) -> bool:
    """Returns whether a node was recorded while gradients were computed."""
    return bool(node.meta.get("partitioner_tag") == "is_backward")


def draws(node: fx.Node) -> bool:
    """Returns whether a node draws random numbers."""
    known = _known.get(id(node.target)) or _known_of(node)
    return known is not None and known.random and effects_of(node.target).draws(node.args, node.kwargs)


def has_no_result(node: fx.Node) -> bool:
    """Returns whether a node runs an operator that returns nothing, and so is there for what it does:
    `_assert_async`.
    """
    return (
        node.op == "call_function" and _torch.operators.is_overload(node.target) and not effects_of(node.target).returns
    )


def communicates(node: fx.Node) -> bool:
    """Returns whether a node talks to other ranks, or waits for them."""
    return (
        node.op == "call_function"
        and _torch.operators.is_overload(node.target)
        and node.target.namespace in _torch.collectives.COLLECTIVES
    )


def waits(node: fx.Node) -> bool:
    """Returns whether a node waits for what a collective gives."""
    return communicates(node) and node.target.overloadpacket.__name__ == "wait_tensor"  # type: ignore[union-attr]


def has_side_effect(node: fx.Node) -> bool:
    """Returns whether a node runs an operator that was registered to have an effect."""
    return (
        node.op == "call_function"
        and _torch.operators.is_overload(node.target)
        and _torch.side_effects.has_side_effect(node.target)
    )


def must_run(node: fx.Node) -> bool:
    """Returns whether a node runs though nobody reads its result: other ranks wait for it, it has none, or it has an
    effect. See Note [Effects of operators].
    """
    known = _known.get(id(node.target)) or _known_of(node)
    if known is None:
        return False
    return known.must_run or _torch.side_effects.has_side_effect(node.target)  # type: ignore[arg-type]
