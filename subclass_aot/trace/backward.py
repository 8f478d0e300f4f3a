"""The second half of a trace: autograd goes back over what the function did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch, descriptors
from subclass_aot.descriptors import OutputDescriptor
from subclass_aot.errors import TraceError
from subclass_aot.flatten import FlattenPlan
from subclass_aot.graph import REPLACED, Recorder, messages
from subclass_aot.jagged import with_structure_of
from subclass_aot.meta import MetaTensor, Replaced
from subclass_aot.outputs import InputLeaf, Value
from subclass_aot.trace.autograd_graph import gradients_of
from subclass_aot.trace.forward import Forward
from subclass_aot.trace.inputs import Gradient, TracedInputs, is_graph_value
from subclass_aot.trace.mutations import backward_writes
from subclass_aot.trace.outputs import part_of
from subclass_aot.trace.tangents import Tangents


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """The gradients that go out, and what else going backward did.

    Attributes:
        recorder: Has recorded forward and this.
        tangents: The gradients that came in, if something wants one.
        of_inputs: By the positions of inputs that have one: how it is made, and the tangents that it comes from.
        nodes: The nodes of what backward computes, by what that is.
        mutated_leaves: The flat slots of inputs that backward writes.
    """

    recorder: Recorder
    tangents: Tangents | None = None
    of_inputs: Mapping[int, Gradient] = field(default_factory=dict)
    nodes: Mapping[OutputDescriptor, fx.Node] = field(default_factory=dict)
    mutated_leaves: tuple[int, ...] = ()


def run_backward(inputs: TracedInputs, forward: Forward, tangents: Tangents | None, recorder: Recorder) -> Backward:
    """Goes backward, if something wants a gradient. A recorder must be listening.

    Args:
        inputs: The inputs.
        forward: What the function did.
        tangents: The gradients that come in.
        recorder: Has recorded forward, and stays as it is.

    Raises:
        MutationError: Backward writes memory that forward writes.
        TraceError: The function went backward itself, and one of several results has no gradient any more.
    """
    if tangents is None:
        return Backward(recorder)
    both = recorder.fork()
    both.phase = "backward"
    try:
        with both, Replaced(both, REPLACED):
            of_inputs, nodes = _gradients(inputs, tangents, both)
    except RuntimeError as error:
        if "backward through the graph a second time" not in str(error):
            raise
        # The function went backward itself, and what autograd keeps for that is gone: the result has no gradient.
        if len(tangents.ends) > 1:
            raise TraceError(messages.USED_UP.format(reason=str(error).split(". ")[0])) from error
        return Backward(recorder)
    return Backward(both, tangents, of_inputs, nodes, backward_writes(inputs, both, forward.mutations.bases))


def _gradients(
    inputs: TracedInputs, tangents: Tangents, recorder: Recorder
) -> tuple[dict[int, Gradient], dict[OutputDescriptor, fx.Node]]:
    """The gradients of the inputs, and the nodes they are made of."""
    of_inputs: dict[int, Gradient] = {}
    nodes: dict[OutputDescriptor, fx.Node] = {}
    requires_grad_inputs = inputs.requires_grad_inputs
    given = tangents.make(recorder)
    with torch.autocast("cpu", enabled=False):
        found = gradients_of(tangents.ends, [inputs.autograd_leaves[i] for i in requires_grad_inputs], given)
    for i, gradient, ends in zip(requires_grad_inputs, found.gradients, found.reach, strict=True):
        if gradient is None:
            continue
        desc = descriptors.Gradient(inputs.plan.descs[i])
        if _torch.is_jagged(type(gradient)):
            gradient = with_structure_of(inputs.autograd_leaves[i], gradient)
        own = set(inputs.plan.index_map.flat_of(i))
        slot_of = {inputs.leaves[slot]: slot for slot in inputs.plan.structure if slot in own}
        plan, leaves = FlattenPlan.read([gradient], where=str(desc))
        sources: list[Any] = []
        for slot, leaf in zip(plan.index_map.slots, leaves, strict=True):
            if isinstance(leaf, MetaTensor) and leaf in slot_of:
                sources.append(InputLeaf(slot_of[leaf]))
            elif is_graph_value(leaf):
                part = part_of(desc, slot)
                sources.append(part)
                nodes[part] = recorder.node_of(leaf)
            else:
                sources.append(leaf)
        of_inputs[i] = Value(plan.metas[0], tuple(sources), requires_grad=False), ends
    return of_inputs, nodes
