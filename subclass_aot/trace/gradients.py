"""The backward part of a trace: the gradients that come in, and those that go out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from subclass_aot import _torch, descriptors
from subclass_aot.descriptors import (
    Descriptor,
    IntermediateBase,
    OutputDescriptor,
    PlainOutput,
    Tangent,
)
from subclass_aot.flatten import FlattenPlan
from subclass_aot.graph import Recorder
from subclass_aot.jagged import structure_of, with_structure_of
from subclass_aot.meta import MetaTensor, Spec
from subclass_aot.outputs import InputLeaf, Value
from subclass_aot.signature import TangentSpec
from subclass_aot.trace.autograd_graph import gradients_of
from subclass_aot.trace.inputs import Gradient, TracedInputs, is_graph_value
from subclass_aot.trace.outputs import packed_tangent, part_of, spec_of_tangent
from subclass_aot.wrapper import plain_tangent


class Tangents:
    """What gradients will come in: known once the forward has run.

    Args:
        outputs: The results that have one, and what each of them is.
        kinds: What each looks like; None for the kind that is expected.

    Attributes:
        ends: The results.
        described: What comes in for each of them.
    """

    def __init__(self, outputs: Mapping[OutputDescriptor, Any], kinds: Sequence[Any]) -> None:
        self.ends = ends = list(outputs.values())
        self._outputs = list(outputs)
        with torch.no_grad():
            plain = [
                packed_tangent(plain_tangent(t.detach())) if kind is None else kind
                for t, kind in zip(ends, kinds, strict=True)
            ]
        self._plan, leaves = FlattenPlan.read(plain, where="tangents")
        self._leaves = [
            spec_of_tangent(x.spec if isinstance(x, MetaTensor) else Spec.of(x)) if isinstance(x, torch.Tensor) else x
            for x in leaves
        ]
        self._given = structure_of(self._plan, ends)
        self._leaves = [None if i in self._given else x for i, x in enumerate(self._leaves)]
        flat_of = self._plan.index_map.flat_of
        self.described = tuple(
            TangentSpec(output, meta, tuple(self._leaves[s] for s in flat_of(i)))
            for i, (output, meta) in enumerate(zip(outputs, self._plan.metas, strict=True))
        )

    def refuse(self, errors: Mapping[int, str], recorder: Recorder) -> None:
        """Notes why some must not come in: what their results need was written. The compiled backward says so, then.

        Raises:
            RuntimeError: The trace may be to blame, or has written something on the way to such an error.
        """
        written = [leaf for leaf, phases in recorder.mutations.written.items() if "backward" in phases]
        if errors and (recorder.mutations.metadata or any(leaf.tag.op == "placeholder" for leaf in written)):
            raise RuntimeError(next(iter(errors.values())))
        self.described = tuple(replace(spec, error=errors.get(i)) for i, spec in enumerate(self.described))

    def collections(self) -> list[Collection[Any]]:
        """Where traced tensors are held."""
        return [self.ends, self._given.values()]

    def specs(self) -> list[Spec]:
        """Those of the leaves that are tensors."""
        return [spec for spec in self._leaves if isinstance(spec, Spec)]

    def make(self, recorder: Recorder) -> tuple[Any, ...]:
        """Placeholders for them. They bring no sizes: those of the results are known."""
        leaves = list(self._leaves)
        number = 0
        for position, spec in enumerate(leaves):
            if isinstance(spec, Spec):
                number += 1
                slot = self._plan.index_map.slots[position]
                desc = part_of(Tangent(self._outputs[slot.outer]), slot)
                leaves[position] = recorder.placeholder(f"tangents_{number}", spec, desc)
        for position, leaf in self._given.items():
            leaves[position] = leaf
        return self._plan.wrap(leaves)


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """The gradients that go out.

    Attributes:
        found: By what has one: how it is made, and the tangents that it comes from.
        nodes: The nodes of what backward computes.
    """

    found: Mapping[Descriptor, Gradient] = field(default_factory=dict)
    nodes: Mapping[OutputDescriptor, Any] = field(default_factory=dict)


def gradients(
    inputs: TracedInputs,
    made_leaves: Mapping[PlainOutput | IntermediateBase, torch.Tensor],
    tangents: Tangents,
    recorder: Recorder,
) -> Gradients:
    """Goes backward, and reads the gradients of the inputs and of leaves that the function made.

    Args:
        inputs: The inputs.
        made_leaves: These leaves. See Note [Made leaves].
        tangents: The gradients that come in.
        recorder: Gets placeholders for them, and listens.
    """
    recorder.phase = "backward"
    found: dict[Descriptor, Gradient] = {}
    nodes: dict[OutputDescriptor, Any] = {}
    targets: dict[Any, torch.Tensor] = dict(made_leaves)
    targets |= {inputs.descs[i]: inputs.autograd_leaves[i] for i in inputs.requires_grad_inputs}
    given = tangents.make(recorder)
    with torch.autocast("cpu", enabled=False):
        computed = gradients_of(tangents.ends, [*targets.values()], given)
    tangents.refuse(computed.errors, recorder)
    for (of, target), gradient, ends in zip(targets.items(), computed.gradients, computed.reach, strict=True):
        if gradient is None:
            continue
        desc = descriptors.Gradient(of)
        if _torch.is_jagged(type(gradient)):
            gradient = with_structure_of(target, gradient)
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
        found[of] = Value(plan.metas[0], tuple(sources), requires_grad=False), ends
    return Gradients(found, nodes)


def _structure_of(target: torch.Tensor, inputs: TracedInputs) -> dict[Any, int]:
    """Flat slots that hold the structure of a jagged tensor: its own if it is an input, else any."""
    own = [s for i, x in enumerate(inputs.autograd_leaves) if x is target for s in inputs.plan.index_map.flat_of(i)]
    return {inputs.leaves[slot]: slot for slot in inputs.structure if slot in own or not own}
