"""The second half of a trace: autograd goes back over what the function did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.engine import descriptors
from subclass_aot.engine.call import refuse_without_memory
from subclass_aot.engine.descriptors import Descriptor, OutputDescriptor
from subclass_aot.engine.graph import REPLACED, Recorder, messages
from subclass_aot.engine.outcome import OlderObjects
from subclass_aot.engine.outputs import InputLeaf, Value
from subclass_aot.engine.signature import Part, TangentSpec
from subclass_aot.engine.structures import structure_of
from subclass_aot.engine.trace.autograd_graph import gradients_of, running_code
from subclass_aot.engine.trace.backward_outcome import CodeThatRuns, Put, read_put
from subclass_aot.engine.trace.forward import Forward
from subclass_aot.engine.trace.inputs import Gradient, TracedInputs, is_graph_value
from subclass_aot.engine.trace.mutations import backward_mutations
from subclass_aot.engine.trace.outputs import part_of
from subclass_aot.engine.trace.parts import may_be_apart, parts_of
from subclass_aot.engine.trace.tangents import Tangents
from subclass_aot.errors import TraceError
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.meta import MetaTensor, Replaced


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """The gradients that go out, and what else going backward did.

    Attributes:
        recorder: Has recorded forward and this.
        tangents: The gradients that came in, if something wants one.
        gradients: By what has one: how it is made, and the tangents that it comes from.
        nodes: The nodes of what backward computes, by what that is.
        mutated_leaves: The flat slots of inputs that backward writes.
        put: What hooks have put into objects.
        errors: By the positions of tangents that must not come in: why. The function has written what their results
            need, and as in eager mode it is backward that says so.
        parts: The parts that it has, if these are several. `gradients` has of each the first.
        running_code: The positions of tangents that lead to code of the program which not all of them lead to.
    """

    recorder: Recorder
    tangents: Tangents | None = None
    gradients: Mapping[Descriptor, Gradient] = field(default_factory=dict)
    nodes: Mapping[OutputDescriptor, fx.Node] = field(default_factory=dict)
    mutated_leaves: tuple[int, ...] = ()
    put: Put | None = None
    errors: Mapping[int, str] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    running_code: frozenset[int] = frozenset()

    @property
    def described_tangents(self) -> tuple[TangentSpec, ...]:
        """What comes in, as the signature has it."""
        return () if self.tangents is None else self.tangents.described(self.errors, self.running_code)


def run_backward(
    inputs: TracedInputs,
    forward: Forward,
    tangents: Tangents | None,
    recorder: Recorder,
    older: OlderObjects,
    in_parts: bool = False,
) -> Backward:
    """Goes backward, if something wants a gradient.

    Args:
        inputs: The inputs.
        forward: What the function did.
        tangents: The gradients that come in.
        recorder: Has recorded forward, and stays as it is.
        older: What is older than the trace.
        in_parts: Whether it may have several parts. See Note [Parts of backward].

    Raises:
        MutationError: Backward writes memory that forward writes.
        TraceError: The function went backward itself, and one of several results has no gradient any more.
    """
    if tangents is None:
        return Backward(recorder)
    both = recorder.fork()
    both.phase = "backward"
    parts: tuple[tuple[int, ...], ...] = ()
    if in_parts and len(tangents.ends) > 1:
        parts = parts_of(tangents.ends, {before.grad_fn for before in inputs.before})
    code_of = running_code(tangents.ends) if forward.runs_hooks else frozenset()
    try:
        # The recorder of forward sees none of it, nor what this one does with real tensors it meets on the way.
        with _torch.dispatch.disable_current_modes(), both, Replaced(both, REPLACED), _seen_as_in_eager_mode(tangents):
            with CodeThatRuns() if forward.runs_hooks else nullcontext() as code:
                found = _gradients(inputs, forward, tangents, both, parts)
            names = () if code is None else code.names
            put = None if forward.after is None else read_put(inputs, forward.after, both, older, names)
            both.listeners.random_numbers.end_backward(both)
    except RuntimeError as error:
        if "backward through the graph a second time" not in str(error):
            raise
        # The function went backward itself, and what autograd keeps for that is gone: the result has no gradient.
        if len(tangents.ends) > 1:
            raise TraceError(messages.USED_UP.format(reason=str(error).split(". ")[0])) from error
        return Backward(recorder)
    mutated_leaves = backward_mutations(inputs, both, forward.mutations.bases)
    reshapes = len(both.mutations.metadata) > len(recorder.mutations.metadata)
    if len(parts) > 1 and (put is not None or mutated_leaves or reshapes or not may_be_apart(both)):
        if forward.after is not None:
            forward.after.put_back()
        return run_backward(inputs, forward, tangents, recorder, older)
    errors, nodes = found.errors, found.nodes
    if errors and (mutated_leaves or both.mutations.metadata):
        raise RuntimeError(next(iter(errors.values())))  # the trace may be to blame, or has written on the way to it
    if put is not None:
        nodes |= put.nodes
    of_parts = _described(inputs, forward, tangents, parts, found) if len(parts) > 1 else ()
    return Backward(both, tangents, found.first, nodes, mutated_leaves, put, errors, of_parts, code_of)


def _seen_as_in_eager_mode(tangents: Tangents) -> AbstractContextManager[None]:
    """Returns a block for hooks in which classes see functions of torch, unless an end of backward has such a class."""
    kinds = map(type, tangents.ends)
    asked = any(
        _torch.plain_subclasses.is_plain_subclass(cls) and _torch.plain_subclasses.sees_functions(cls) for cls in kinds
    )
    return nullcontext() if asked else _torch.plain_subclasses.classes_see("as outside")


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """The gradients of inputs and of leaves that the function made.

    Attributes:
        gradients: For each part of backward, those that it gives, by what has them.
        nodes: Their nodes.
        errors: See `Backward.errors`.
    """

    gradients: Sequence[dict[Descriptor, Gradient]]
    nodes: dict[OutputDescriptor, fx.Node]
    errors: dict[int, str]

    @property
    def first(self) -> dict[Descriptor, Gradient]:
        """The first gradient of each."""
        return {of: gradient for each in reversed(self.gradients) for of, gradient in each.items()}


def _gradients(
    inputs: TracedInputs,
    forward: Forward,
    tangents: Tangents,
    recorder: Recorder,
    parts: Sequence[Sequence[int]],
) -> _Found:
    """Computes the gradients.

    Args:
        inputs: The inputs.
        forward: What the function did.
        tangents: The gradients that come in.
        recorder: Records it.
        parts: The positions of tangents in each part of backward, if there are several.
    """
    gradients: list[dict[Descriptor, Gradient]] = []
    nodes: dict[OutputDescriptor, fx.Node] = {}
    errors: dict[int, str] = {}
    targets: dict[Any, torch.Tensor] = dict(forward.made_leaves)
    targets |= {inputs.plan.descs[i]: inputs.autograd_leaves[i] for i in inputs.requires_grad_inputs}
    given = tangents.make(recorder)
    begin_again = (lambda: None) if forward.after is None else forward.after.put_back
    for number, part in enumerate(parts or [range(len(given))]):
        ends, of_ends = [tangents.ends[i] for i in part], [given[i] for i in part]
        with _torch.switches.disable_autocast():
            computed = gradients_of(ends, [*targets.values()], of_ends, begin_again)
        errors |= {part[i]: error for i, error in computed.errors.items()}
        gradients.append({})
        for (of, target), gradient, reach in zip(targets.items(), computed.gradients, computed.reach, strict=True):
            if gradient is not None:
                value = _value(inputs, recorder, target, gradient, descriptors.Gradient(of, number), nodes)
                gradients[-1][of] = value, tuple(part[i] for i in reach)
    return _Found(gradients, nodes, errors)


def _value(
    inputs: TracedInputs,
    recorder: Recorder,
    target: torch.Tensor,
    gradient: torch.Tensor,
    desc: OutputDescriptor,
    nodes: dict[OutputDescriptor, fx.Node],
) -> Value:
    """Returns how the gradient of `target` is made of what backward computes, whose nodes it adds to `nodes`."""
    shared = structure_of(type(gradient))
    if shared is not None:
        gradient = shared.gradient_like(target, gradient)
    refuse_without_memory(gradient, str(desc))
    structure = _structure_of(target, inputs)
    plan, leaves = FlattenPlan.read([gradient], where=str(desc))
    sources: list[Any] = []
    for slot, leaf in zip(plan.index_map.slots, leaves, strict=True):
        if isinstance(leaf, MetaTensor) and leaf in structure:
            sources.append(InputLeaf(structure[leaf]))
        elif is_graph_value(leaf):
            part = part_of(desc, slot)
            sources.append(part)
            nodes[part] = recorder.node_of(leaf)
        else:
            sources.append(leaf)
    return Value(plan.metas[0], tuple(sources), requires_grad=False)


def _described(
    inputs: TracedInputs, forward: Forward, tangents: Tangents, parts: Sequence[Sequence[int]], found: _Found
) -> tuple[Part, ...]:
    """Returns the parts of backward as the signature has them."""
    position: dict[Descriptor, int] = {of: i for i, of in enumerate((*inputs.plan.descs, *forward.made_leaves))}
    described = []
    for part, gradients in zip(parts, found.gradients, strict=True):
        place = {tangent: i for i, tangent in enumerate(part)}
        of_part = [(position[of], value, tuple(place[i] for i in reach)) for of, (value, reach) in gradients.items()]
        described.append(Part(tuple(tangents.outputs[i] for i in part), tuple(of_part)))
    return tuple(described)


def _structure_of(target: torch.Tensor, inputs: TracedInputs) -> dict[Any, int]:
    """Returns flat slots that hold the structure of a tensor: its own if it is an input, else any."""
    plan = inputs.plan
    if not plan.structure:
        return {}
    own = [s for i, x in enumerate(inputs.autograd_leaves) if x is target for s in plan.index_map.flat_of(i)]
    return {inputs.leaves[slot]: slot for slot in plan.structure if slot in own or not own}
