"""Plans: the steps that run a graph operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from subclass_aot.meta import Spec


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator; arguments are nodes, values, and calls that nobody else needs the result of."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that run a graph.

    Attributes:
        steps: In order: a node with the call that makes it, or None and a call that writes.
        same: For nodes without a call: the node whose memory they take over, and with it the tensor.
    """

    steps: list[tuple[fx.Node | None, Call]]
    same: dict[fx.Node, fx.Node]


def owner_of(node: fx.Node, same: dict[fx.Node, fx.Node]) -> fx.Node:
    """Returns the node whose tensor a node is."""
    path = []
    while node in same:
        path.append(node)
        node = same[node]
    for passed in path:
        same[passed] = node
    return node


def nodes_in(values: Iterable[object]) -> Iterator[fx.Node]:
    """Yields the nodes among values, in calls and containers too."""
    for value in values:
        if isinstance(value, fx.Node):
            yield value
        elif isinstance(value, Call):
            yield from nodes_in((*value.args, *value.kwargs.values()))
        elif isinstance(value, list | tuple):
            yield from nodes_in(value)
        elif isinstance(value, slice):
            yield from nodes_in((value.start, value.stop, value.step))


def look_alike(one: fx.Node, other: fx.Node) -> bool:
    """Returns whether two nodes have the same sizes, strides and dtype; one that is expanded is like no result."""
    a, b = one.meta.get("spec"), other.meta.get("spec")
    if not isinstance(a, Spec) or not isinstance(b, Spec):
        return False
    if a.solver is not None or b.solver is not None:
        return a.equals(b)
    return (a.size, a.stride, a.dtype, a.device) == (b.size, b.stride, b.dtype, b.device)
