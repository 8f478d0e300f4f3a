"""Which calls are functions: of them, graphs can be transformed."""

from __future__ import annotations

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot.flatten import PlainTensorMeta
from subclass_aot.outputs import AliasOfLeaf, Constant, InputLeaf, Value
from subclass_aot.passes import draws
from subclass_aot.signature import JointSignature, Mutations


def is_pure(signature: JointSignature, graph: fx.GraphModule) -> bool:
    """Whether a call computes new dense tensors of its tensors, the same each time, and does nothing else.

    Args:
        signature: Its signature.
        graph: Its forward graph.
    """
    assumptions, outcome = signature.assumptions, signature.outcome
    if assumptions.looks or assumptions.read or assumptions.beginnings or assumptions.runtime_asserts:
        return False
    if outcome.changes or outcome.objects:
        return False
    if (
        outcome.changes_process
        or signature.mutations != Mutations()
        or signature.views
        or signature.intermediate_bases
        or signature.made_leaves
    ):
        return False
    if any(draws(node) for node in graph.graph.nodes):
        return False
    constants = [getattr(graph, node.target) for node in graph.graph.find_nodes(op="get_attr")]
    if any(isinstance(x, torch.Tensor) and _torch.without_levels(x) is not x for x in constants):
        return False
    return any(isinstance(x, Value) for x in signature.outputs) and all(map(_is_new, signature.outputs))


def _is_new(output: object) -> bool:
    if isinstance(output, Constant):
        return not isinstance(output.value, torch.Tensor)
    if not isinstance(output, Value) or not isinstance(output.meta, PlainTensorMeta):
        return False
    return not any(isinstance(leaf, InputLeaf | AliasOfLeaf) for leaf in output.leaves)
