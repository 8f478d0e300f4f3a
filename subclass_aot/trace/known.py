"""Values that are known although nothing has data: those that follow from constants alone."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot.meta import effects_of

_LIMIT = 4096
"""Elements that a tensor on the way may have at the most: what programs ask for is mostly one number."""


def known_value(
    node: fx.Node, constants: Mapping[str, torch.Tensor], written: Collection[fx.Node]
) -> torch.Tensor | None:
    """Computes what a node of a recorded graph stands for, if no input of the graph and no draw has a part in it.

    Args:
        node: A node whose value is a tensor.
        constants: The graph's real tensors, by attribute name.
        written: Nodes whose values were written since they were made.

    Returns:
        The tensor, or None where it is not known.
    """
    needed: set[fx.Node] = set()
    todo = [node]
    while todo:
        step = todo.pop()
        if step in needed:
            continue
        if step in written or not _is_fixed(step):
            return None
        needed.add(step)
        todo += step.all_input_nodes
    values: dict[fx.Node, Any] = {}
    with _torch.disable_current_modes(), torch.no_grad():
        for step in sorted(needed):
            if step.op == "get_attr":
                values[step] = constants[step.target]  # type: ignore[index]
            else:
                args, kwargs = fx.map_arg((step.args, step.kwargs), values.__getitem__)  # type: ignore[misc]
                values[step] = step.target(*args, **kwargs)  # type: ignore[operator]
    value: torch.Tensor = values[node]
    return value


def _is_fixed(node: fx.Node) -> bool:
    """True if a node gives the same small result each time, given its arguments."""
    spec = node.meta.get("spec")
    if spec is not None and (spec.device.type != "cpu" or spec.numel > _LIMIT):
        return False
    if node.op != "call_function" or node.target is operator.getitem:
        return node.op != "placeholder"
    effects = effects_of(node.target)
    return not effects.writes and not effects.random
