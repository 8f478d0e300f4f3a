"""Values that are known although nothing has data: those that follow from constants alone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.operators import effects_of, runs_once
from subclass_aot.engine.passes import is_symint
from subclass_aot.meta.symbols import SizesMustBeKnown


@dataclass(frozen=True, slots=True, eq=False)
class Readable:
    """An input of which the values may be read while tracing: they are then part of the signature.

    Attributes:
        path: The argument that it belongs to.
        tensor: It.
        note: Called when it is read.
    """

    path: str
    tensor: torch.Tensor
    note: Callable[[], None]


class Earlier(NamedTuple):
    """What was found of the nodes of a graph.

    Attributes:
        numbers: The tensors of one number that are known since the last node was recorded.
        varying: Nodes whose values depend on an input or a draw. Without these, each query would go back to the inputs.
    """

    numbers: dict[fx.Node, torch.Tensor]
    varying: set[fx.Node]


_LIMIT = 1 << 20
"""Elements that a tensor on the way may have at the most."""

LITERAL = torch.ops.aten.lift_fresh_copy.default


def known_value(
    node: fx.Node,
    nodes: Collection[fx.Node],
    constants: Mapping[str, torch.Tensor],
    written: Collection[fx.Node],
    readable: Mapping[fx.Node, Readable],
    earlier: Earlier,
) -> torch.Tensor | None:
    """Computes the value of a node of a recorded graph, if no input of the graph and no draw has a part in it.

    An operator on a list makes all counters of an optimizer, which are then read one after the other: what was computed
    for one of them serves the others.

    Inputs that are readable count as known, and are noted as read.

    Of the graph's real tensors, those that are literals of the program are known. A tensor that the program merely
    found is not: whoever owns it may write into it between two calls.

    Args:
        node: A node whose value is a tensor.
        nodes: The nodes that are recorded; others may use them that are no part of this.
        constants: The graph's real tensors, by attribute name.
        written: Nodes whose values were written since they were made.
        readable: Inputs whose values may be part of the signature.
        earlier: What earlier calls have found; it gets more.

    Returns:
        The tensor, or None where it is not known.

    Raises:
        SizesMustBeKnown: A readable input has symbolic sizes.
    """
    if readable:
        _need_known_sizes(node, readable)
    if node in earlier.numbers:
        return earlier.numbers[node].clone()  # a program may write the one that it got
    readers: dict[fx.Node, fx.Node | None] = {}  # of each that is needed, one that needs it
    todo: list[tuple[fx.Node, fx.Node | None]] = [(node, None)]
    while todo:
        step, reader = todo.pop()
        if step in readers:
            continue
        readers[step] = reader
        if step in earlier.varying or step not in readable and not _is_fixed(step, nodes):
            found: fx.Node | None = step
            while found is not None:
                earlier.varying.add(found)
                found = readers[found]
            return None
        sources = step.all_input_nodes
        if step in written:
            sources = [*sources, *_writes_into(step, nodes)]
        todo += [(source, step) for source in sources]
    values: dict[fx.Node, Any] = {}
    with _torch.switches.as_recorded():
        for step in sorted(readers):
            if step in readable:
                values[step] = readable[step].tensor
                readable[step].note()
            elif step.op == "get_attr":
                values[step] = constants[step.target]  # type: ignore[index]
            else:
                args, kwargs = fx.map_arg((step.args, step.kwargs), values.__getitem__)
                values[step] = step.target(*args, **kwargs)  # type: ignore[operator]
    numbers = {step: x.clone() for step, x in values.items() if isinstance(x, torch.Tensor) and not x.dim()}
    earlier.numbers.update(numbers)
    value: torch.Tensor = values[node]
    return value


def _need_known_sizes(node: fx.Node, readable: Mapping[fx.Node, Readable]) -> None:
    """Has the trace begin again if the value of `node` depends on readable inputs alone, and these have symbols."""
    seen: set[fx.Node] = set()
    todo = [node]
    while todo:
        step = todo.pop()
        if step not in seen:
            seen.add(step)
            todo += [] if step in readable else step.all_input_nodes
    sources = [step for step in seen if step.op == "placeholder"]
    if all(step in readable or is_symint(step) for step in sources):
        symbolic = [readable[s].path for s in sources if s in readable and s.meta["spec"].solver is not None]
        if symbolic:
            raise SizesMustBeKnown(symbolic)


def _is_fixed(node: fx.Node, nodes: Collection[fx.Node]) -> bool:
    """Returns True if a node gives the same small result each time, given its arguments."""
    spec = node.meta.get("spec")
    if spec is not None and (spec.solver is not None or spec.device.type != "cpu" or spec.numel > _LIMIT):
        return False
    if is_symint(node):
        return False
    if node.op == "get_attr":
        users = [user for user in node.users if user in nodes]
        return bool(users) and all(user.target is LITERAL for user in users)
    if node.op == "placeholder":
        return False
    return node.target is operator.getitem or not (effects_of(node.target).random or runs_once(node.target))


def _writes_into(node: fx.Node, nodes: Collection[fx.Node]) -> list[fx.Node]:
    """Returns the operators that wrote into what `node` made, through it or through views of it."""
    writes: list[fx.Node] = []
    aliases = [node]
    while aliases:
        for user in aliases.pop().users:
            if user not in nodes:
                continue
            if user.target is operator.getitem:
                aliases.append(user)
            elif effects_of(user.target).writes:
                writes.append(user)
            elif any(effects_of(user.target).returns_view_of):
                aliases.append(user)
    return writes
