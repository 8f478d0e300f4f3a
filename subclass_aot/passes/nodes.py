"""What a node of a graph is."""

from __future__ import annotations

from torch import fx

from subclass_aot import _torch
from subclass_aot.operators import effects_of
from subclass_aot.symbols import is_symbolic


def is_symint(node: fx.Node) -> bool:
    """Tells whether a node stands for a symbolic number."""
    return is_symbolic(node.meta.get("val"))


def is_backward(node: fx.Node) -> bool:
    """Tells whether a node was recorded while gradients were computed."""
    return bool(node.meta.get("partitioner_tag") == "is_backward")


def draws(node: fx.Node) -> bool:
    """Tells whether a node draws random numbers."""
    return node.op == "call_function" and _torch.is_overload(node.target) and effects_of(node.target).random
