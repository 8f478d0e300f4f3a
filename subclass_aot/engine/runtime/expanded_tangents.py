"""Gradients that come expanded, as from `.sum()`: which of them a backward graph takes as they are.

Note [Expanded gradients]
~~~~~~~~~~~~~~~~~~~~~~~~~
A backward graph is traced for gradients of certain strides, and one with others is copied. The gradient of a sum is one
number, expanded: its copy is a pass over memory, which eager mode does not make. Operators one by one take it as it
is, where nothing that they give depends on its strides: one that works element by element, if another operand has the
layout of the result; a product of matrices, also of the transposed; and a sum.

>>> import torch
>>> import subclass_aot as sa
>>> compiled = sa.aot_compile(torch.nn.functional.silu)
>>> x = torch.ones(3, requires_grad=True)
>>> compiled(x).sum().backward()
>>> print(compiled.source)
def call(...):
    ...
    if tangent_0_0.stride() != (1, ) and any(tangent_0_0.stride()): ...
    ...
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.descriptors import Tangent, descriptor_of, outermost
from subclass_aot.meta import Spec

_aten = torch.ops.aten
_ANY_STRIDES = frozenset(
    [_aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.sum.default, _aten.sum.dim_IntList]
)
"""Operators whose results are packed, whatever strides they are given."""
_TRANSPOSES = frozenset([_aten.t.default, _aten.transpose.int, _aten.permute.default])
_TAKEN = "taken_expanded"


def note_taken_expanded(graph: fx.Graph) -> None:
    """Notes on the inputs of a backward graph which gradients it takes expanded.

    Args:
        graph: The graph, of which each operator runs by itself.
    """
    for node in graph.find_nodes(op="placeholder"):
        if isinstance(outermost(descriptor_of(node)), Tangent):
            node.meta[_TAKEN] = _is_taken(node)


def is_taken_expanded(node: fx.Node) -> bool:
    """Returns what was noted on an input."""
    return bool(node.meta.get(_TAKEN))


def _is_taken(node: fx.Node) -> bool:
    spec = node.meta["spec"]
    return isinstance(spec, Spec) and spec.solver is None and all(_takes(user, node, spec) for user in node.users)


def _takes(user: fx.Node, node: fx.Node, spec: Spec) -> bool:
    """Returns whether an operator gives the same for a gradient of other strides."""
    if user.target in _ANY_STRIDES:
        return True
    if user.target in _TRANSPOSES:
        return all(next_user.target in _ANY_STRIDES for next_user in user.users)
    result = user.meta.get("spec")
    if user.op != "call_function" or not isinstance(result, Spec) or not _is_pointwise(user.target):
        return False
    others = [x.meta["spec"] for x in user.all_input_nodes if x is not node and isinstance(x.meta.get("spec"), Spec)]
    packed = (spec.size, spec.stride)
    return (result.size, result.stride) == packed and any((other.size, other.stride) == packed for other in others)


def _is_pointwise(target: Any) -> bool:
    if not _torch.operators.is_overload(target):
        return False
    return torch.Tag.pointwise in target.tags and not effects_of(target).mutates
