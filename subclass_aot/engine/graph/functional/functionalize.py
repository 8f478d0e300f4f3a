"""From a graph that mutates to one that does not."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.func import functionalize

from subclass_aot.base import _torch
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.aliasing import Base
from subclass_aot.engine.descriptors import (
    BackwardMutation,
    LiveInput,
    MutatedInput,
    OutputDescriptor,
    SyntheticBase,
    descriptor_of,
)
from subclass_aot.engine.graph.functional.forms import replay as replay_operator
from subclass_aot.engine.graph.functional.memory_views import FlatStorage, MemoryViews
from subclass_aot.engine.graph.listeners.annotations import annotations_of
from subclass_aot.engine.graph.recorder import Recorder
from subclass_aot.engine.graph.resize import resized_by, resizes, with_capacity
from subclass_aot.engine.passes import cleaned, is_backward, is_symint
from subclass_aot.engine.stages import note_stage
from subclass_aot.meta import MetaTensor, Storage
from subclass_aot.meta.symbols import current_symbols


@dataclass(frozen=True, slots=True)
class Functional:
    """A graph without mutations.

    Attributes:
        graph: It, without an output node.
        outputs: The node of each wanted result; before these, the new value of each wanted input when forward
            ended, and after them, of each input that backward writes, when backward ended.
        constants: Its real tensors, by attribute name.
    """

    graph: fx.Graph
    outputs: dict[OutputDescriptor, Any]
    constants: Mapping[str, torch.Tensor]


def remove_mutations(
    recorded: Recorder,
    results: Mapping[OutputDescriptor, Any],
    written: Sequence[fx.Node],
    bases: Mapping[SyntheticBase, Base] | None = None,
    live: Sequence[fx.Node] = (),
) -> Functional:
    """Runs a recorded graph again under `torch.func.functionalize`, with a new recorder; copies it if nothing writes.

    Only dense leaves take part: wrappers are gone from a recorded graph. What was recorded stays as it is.

    Args:
        recorded: The recorder of the graph as written.
        results: What is wanted at the end: nodes; numbers that are known stand for themselves.
        written: Placeholders whose values are wanted as they are at the end of the forward.
        bases: Storages that stand for several placeholders. See Note [Shared storage].
        live: Placeholders that backward writes. It reads them as they are when it runs, so each becomes one more
            input, after the tangents.
    """
    counts = "places" in recorded.listeners and recorded.listeners.places.counts_in_inputs
    if not recorded.mutations and not counts:
        return _cleaned(recorded, results)
    rewrite = _Rewrite(recorded, bases or {}, live)
    at_end = [
        *(descriptor_of(node) for node in written),
        *(desc for desc, base in rewrite.bases.items() if base.is_written),
    ]
    new_values = [MutatedInput(desc) for desc in at_end]
    live_values = [BackwardMutation(descriptor_of(node)) for node in live]
    with _torch.postponed.without_slow_imports(), _torch.switches.as_recorded(), rewrite.recorder:
        leaves = rewrite.make_inputs()
        play = functools.partial(rewrite.play, results=list(results.values()), written=written)
        out = functionalize(play, remove="mutations")(*leaves)
    rewrite.recorder.phase = "backward"
    every = [*results, *new_values, *live_values]
    nodes = dict(zip(every, [rewrite.recorder.node_of(leaf) for leaf in out], strict=True))
    for desc in (*new_values, *live_values):
        nodes[desc] = nodes[desc].args[0]  # what `play` has copied
    outputs = {desc: nodes[desc] for desc in (*new_values, *results, *live_values)}
    found = _cleaned(rewrite.recorder, outputs)
    assert not any(map(_writes, found.graph.nodes)), "a write that is left would be lost"
    return found


def _cleaned(recorder: Recorder, results: Mapping[OutputDescriptor, Any]) -> Functional:
    nodes = recorder.in_order()
    note_stage("functional", lambda: nodes)
    graph, copies = cleaned(nodes, results.values(), without=set(filter(_is_write_back, nodes)))
    outputs = {desc: copies.get(node, node) for desc, node in results.items()}
    return Functional(graph, outputs, recorder.listeners.real_tensors.constants)


def _is_write_back(node: fx.Node) -> bool:
    """Returns whether a node is the `copy_` into a mutated input with which `functionalize` ends; the runtime
    writes back.
    """
    target: Any = node.args[0] if node.target is torch.ops.aten.copy_.default else None
    return target is not None and target.op == "placeholder"


def _writes(node: fx.Node) -> bool:
    return _torch.operators.is_overload(node.target) and bool(effects_of(node.target).writes)


_aten = torch.ops.aten
_DECOMPOSED = {
    _aten.binary_cross_entropy_with_logits.default: _aten.binary_cross_entropy_with_logits.out,
}
"""Operators with a kernel that transforms decompose into more of them, and their forms that transforms leave alone."""


class _Rewrite:
    """A recorded graph, and the recorder that it is played to."""

    def __init__(self, recorded: Recorder, bases: Mapping[SyntheticBase, Base], live: Sequence[fx.Node]) -> None:
        self.recorded = recorded
        self.recorder = Recorder(recorded.decompositions)  # the form of `t_` without mutation may be one of them
        self.bases = bases
        self.live = live
        self.placeholders: list[Any] = [n for n in recorded.in_order() if n.op == "placeholder"]
        metadata_mutations = {
            recorded.node_of(leaf) for leaf, *_ in recorded.mutations.metadata if isinstance(leaf, MetaTensor)
        }
        self.extents = {
            storage.tag: recorded.mutations.extents[storage]
            for storage in dict.fromkeys(map(Storage.of, recorded.mutations.resized))
        }
        self.owner_of = {recorded.node_of(leaf): Storage.of(leaf).tag for leaf in recorded.mutations.resized}
        self.metadata_mutations = [n for n in self.placeholders if n in metadata_mutations]
        based = {desc for base in bases for desc in base.base_of}
        stored = [*self.extents, *(node for node in self.placeholders if descriptor_of(node) in based)]
        self.memory = MemoryViews(recorded, stored)

    def make_inputs(self) -> list[MetaTensor]:
        """Returns the inputs of the new graph: those of the old one, bases before the tangents, live ones at the
        end.
        """
        recorder = self.recorder
        leaves = []
        for node in self.placeholders:
            recorder.phase = "backward" if is_backward(node) else "forward"
            if is_symint(node):
                recorder.symint_placeholder(node.target, node.meta["val"], descriptor_of(node))
                continue
            leaves.append(recorder.placeholder(node.target, node.meta["spec"], descriptor_of(node)))
        recorder.phase = "forward"
        first_tangent = next((leaf.meta_tag for leaf in leaves if is_backward(leaf.meta_tag)), None)
        for number, (desc, base) in enumerate(self.bases.items(), 1):
            leaf = recorder.placeholder(f"primals_base_{number}", base.spec, desc)
            if first_tangent is not None:
                first_tangent.prepend(leaf.meta_tag)
            leaves.append(leaf)
        recorder.phase = "backward"
        for number, node in enumerate(self.live, 1):
            leaves.append(
                recorder.placeholder(f"tangents_live_{number}", node.meta["spec"], LiveInput(descriptor_of(node)))
            )
        recorder.phase = "forward"
        return leaves

    def play(
        self,
        *leaves: torch.Tensor,
        results: Sequence[Any],
        written: Sequence[fx.Node],
    ) -> list[Any]:
        """Runs the old graph on new inputs.

        Returns:
            `results`; then copies of `written` and of the bases, taken when the forward ended; then copies of the live
            inputs at the end.
        """
        tensors = [n for n in self.placeholders if not is_symint(n)]
        values: dict[fx.Node, Any] = dict(zip(tensors, leaves, strict=False))
        storages = leaves[len(tensors) : len(tensors) + len(self.bases)]
        live_leaves = leaves[len(tensors) + len(self.bases) :]
        node_of = {descriptor_of(node): node for node in self.placeholders}
        for base, storage in zip(self.bases, storages, strict=True):
            for node in map(node_of.__getitem__, base.base_of):
                self.memory.storage_of[node] = FlatStorage(storage)
                values[node] = self.memory.storage_of[node].view(node.meta["spec"])
        values = {node: self.memory.noted(node, value) for node, value in values.items()}
        at_end = [storage for base, storage in zip(self.bases.values(), storages, strict=True) if base.is_written]
        end_values = [values[n] for n in written] + at_end
        for (
            node
        ) in self.metadata_mutations:  # alias first: an in-place metadata operator must not change the placeholder
            values[node] = torch.ops.aten.alias.default(values[node])
        snapshots: list[Any] | None = None
        for node in self.recorded.in_order():
            if node.op == "placeholder" or is_symint(node) and not node.meta.get("unbacked"):
                continue
            if snapshots is None and node.meta["partitioner_tag"] == "is_backward":
                snapshots = self.end_forward(results, end_values)
                self.recorder.phase = "backward"
                for live, leaf in zip(self.live, live_leaves, strict=True):
                    values[live] = self.memory.noted(live, leaf)
            resized = resized_by(node)
            owner = node if resized is None else self.owner_of.get(resized, resized)
            if resized is not None and owner in self.extents:
                values[resized] = self.memory.storage_of[owner].view(node.meta["spec"])
                if resizes(node):  # nothing else refers to its result: that is the tensor itself
                    continue
            value = self.play_node(node, values)
            if node in self.extents:
                spec = node.meta["spec"]
                self.memory.storage_of[node] = FlatStorage(with_capacity(value, spec, self.extents[node]))
                value = self.memory.storage_of[node].view(spec)
            values[node] = self.memory.noted(node, value)
        if snapshots is None:
            snapshots = self.end_forward(results, end_values)
        wanted = [_value_of(n, values) for n in results]
        return wanted + snapshots + [x.clone() for x in live_leaves]

    def end_forward(self, results: Sequence[Any], end_values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies of `end_values`. What numbers forward gives, it computes here at the latest."""
        for node in results:
            if isinstance(node, fx.Node) and is_symint(node) and not is_backward(node):
                self.recorder.node_of(node.meta["val"])
        return [x.clone() for x in end_values]

    def play_node(self, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        """Runs one node of the old graph."""
        target: Any = node.target
        self.recorder.listeners.stack_traces.given = str(node.meta["stack_trace"])
        self.recorder.listeners.annotations.given = annotations_of(node)
        if node.op == "get_attr":
            real_tensors = self.recorded.listeners.real_tensors
            leaf = self.recorder.listeners.real_tensors.constant(self.recorder, real_tensors.constants[target])
            return _torch.dispatch.as_functional(leaf)  # what is computed of it may be written
        symbols = current_symbols()
        if symbols is not None:
            symbols.repeat(node.meta.get("unbacked", []))
        args: Any
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: _value_of(n, values))
        if target is operator.getitem:
            return args[0][args[1]]
        made = self.memory.play(node, values, args)
        if made is not NotImplemented:
            return made
        if target in _DECOMPOSED:
            spec = node.meta["spec"]
            result = args[0].new_empty_strided(spec.size, spec.stride, dtype=spec.dtype)
            return _DECOMPOSED[target](*args, **kwargs, out=result)
        return replay_operator(self.recorder.graph, target, args, kwargs)


def _value_of(node: object, values: Mapping[fx.Node, Any]) -> Any:
    """Returns the value that a result of the old graph has in the new run. Symbolic numbers are the same in both."""
    if not isinstance(node, fx.Node):
        return node
    return node.meta["val"] if is_symint(node) else values[node]
