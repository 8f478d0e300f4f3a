"""What the engine has of checks of values: their nodes, the error of one that fails, and places for the rest.

See Note [Reads of values]. The checks themselves are a subject: see `subjects/value_reads/checks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from subclass_aot.base.later import Later
from subclass_aot.engine.compilers import Backend, BoxedFunction, compiled, example_inputs
from subclass_aot.engine.descriptors import OutputDescriptor
from subclass_aot.engine.graph import DRAW_ELSEWHERE
from subclass_aot.engine.signature import JointSignature

put_checks: Later[..., None] = Later("put_checks")
"""Puts the checks of a signature into its forward graph."""

compiled_in_parts: Later[[Backend, fx.GraphModule], BoxedFunction] = Later("compiled_in_parts")
"""Compiles a forward graph with checks in it, or with operators that no compiler gets."""


class OtherValue(Exception):
    """A call has another value than the one that was traced, or another than what the program assumed of it.

    Attributes:
        position: Which look, in their order; None for an assumption.
        value: What it found; for an assumption its text, and the numbers in it.
    """

    def __init__(self, position: int | None, value: Any) -> None:
        super().__init__(position, value)
        self.position = position
        self.value = value


def with_checks(graph: fx.GraphModule, signature: JointSignature, computed: Mapping[OutputDescriptor, Any]) -> None:
    """Puts the checks of a signature into its forward graph, if it has any.

    Args:
        graph: The forward graph.
        signature: The signature.
        computed: The nodes of what forward computes.
    """
    if signature.assumptions.looks or signature.assumptions.runtime_asserts:
        put_checks(graph, signature, computed)
    graph.recompile()


def compiled_forward(backend: Backend, graph: fx.GraphModule) -> BoxedFunction:
    """Compiles a forward graph.

    Args:
        backend: What compiles it.
        graph: The graph.
    """
    if is_in_parts(graph):
        return compiled_in_parts(backend, graph)
    return compiled(backend, graph, example_inputs(graph), False)


def is_in_parts(graph: fx.GraphModule) -> bool:
    """Returns whether compilers get a graph in parts."""
    return any("is_check" in node.meta or node.target in _ALONE for node in graph.graph.nodes)


def is_check(node: fx.Node) -> bool:
    """Returns whether a node is a check."""
    return "is_check" in node.meta


def is_alone(node: fx.Node) -> bool:
    """Returns whether no compiler gets an operator: torch has no shape function for it, or it draws elsewhere."""
    return node.target in _ALONE


_aten = torch.ops.aten
_ALONE = (_aten._ctc_loss.default, DRAW_ELSEWHERE)
