"""The backward part of a trace: the gradients that come in, and those that go out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.call import structure_of, with_structure_of
from subclass_aot.flatten import FlattenPlan, ValueMeta
from subclass_aot.graph import Recorder
from subclass_aot.meta import MetaTensor, Spec
from subclass_aot.trace.autograd_graph import gradients_of
from subclass_aot.trace.inputs import TracedInputs, is_graph_value
from subclass_aot.trace.outputs import Computed, InputLeaf, Value, packed_tangent, spec_of_tangent
from subclass_aot.wrapper import plain_tangent


class Tangents:
    """What gradients will come in: known once the forward has run.

    Args:
        ends: The results that have one.
        kinds: What each looks like; None for the kind that is expected.

    Attributes:
        ends: As given.
        described: For each, its meta and the specs of its leaves.
    """

    def __init__(self, ends: Sequence[Any], kinds: Sequence[Any]) -> None:
        self.ends = ends
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
        self.described: tuple[tuple[ValueMeta, tuple[Any, ...]], ...] = tuple(
            (meta, tuple(self._leaves[s] for s in flat_of(i))) for i, meta in enumerate(self._plan.metas)
        )

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
                meaning = "tangent of " + self._plan.index_map.slots[position].name("outputs")
                leaves[position] = recorder.placeholder(f"tangents_{number}", spec, meaning)
        for position, leaf in self._given.items():
            leaves[position] = leaf
        return self._plan.wrap(leaves)


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """The gradients that go out.

    Attributes:
        values: For each input, how its gradient is made of leaves, or None where it has none.
        reach: For each input, the positions of the tangents that its gradient comes from.
        nodes: The node of each leaf.
        meanings: What each leaf is.
    """

    values: tuple[Value | None, ...]
    reach: tuple[tuple[int, ...], ...]
    nodes: tuple[Any, ...] = ()
    meanings: tuple[str, ...] = ()


def gradients(inputs: TracedInputs, tangents: Tangents, recorder: Recorder) -> Gradients:
    """Goes backward, and reads the gradients of the inputs.

    Args:
        inputs: The inputs.
        tangents: The gradients that come in.
        recorder: Gets placeholders for them, and listens.
    """
    recorder.phase = "backward"
    values: list[Value | None] = [None] * len(inputs.autograd_leaves)
    reach: list[tuple[int, ...]] = [()] * len(inputs.autograd_leaves)
    nodes: list[Any] = []
    meanings: list[str] = []
    requires_grad_inputs = inputs.requires_grad_inputs
    given = tangents.make(recorder)
    with torch.autocast("cpu", enabled=False):
        found = gradients_of(tangents.ends, [inputs.autograd_leaves[i] for i in requires_grad_inputs], given)
    for i, gradient, ends in zip(requires_grad_inputs, found.gradients, found.reach, strict=True):
        if gradient is None:
            continue
        reach[i] = ends
        path = inputs.paths[i]
        if _torch.is_jagged(type(gradient)):
            gradient = with_structure_of(inputs.autograd_leaves[i], gradient)
        own = set(inputs.plan.index_map.flat_of(i))
        slot_of = {inputs.leaves[slot]: slot for slot in inputs.structure if slot in own}
        plan, leaves = FlattenPlan.read([gradient], where=f"gradient of {path}")
        sources: list[Any] = []
        for slot, leaf in zip(plan.index_map.slots, leaves, strict=True):
            if isinstance(leaf, MetaTensor) and leaf in slot_of:
                sources.append(InputLeaf(slot_of[leaf]))
            elif is_graph_value(leaf):
                sources.append(Computed(len(nodes)))
                nodes.append(recorder.node_of(leaf))
                call = "" if slot.dim is None else f".{slot.kind}({slot.dim})"
                meanings.append(f"gradient of {path}{''.join(slot.path)}{call}")
            else:
                sources.append(leaf)
        values[i] = Value(plan.metas[0], tuple(sources), requires_grad=False)
    return Gradients(tuple(values), tuple(reach), tuple(nodes), tuple(meanings))
