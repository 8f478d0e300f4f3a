"""From a graph that mutates to one that does not."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.func import functionalize

from subclass_aot.meta import MetaTensor
from subclass_aot.trace.recorder import Recorder
from subclass_aot.trace.replay import replay as replay_operator
from subclass_aot.trace.sharing import Base


@dataclass(frozen=True, slots=True)
class Functional:
    """A graph without mutations.

    Attributes:
        recorder: What recorded it.
        results: For each result asked for, its node.
        new_values: For each written input asked for, the node of its value when the forward ended.
        live_values: For each input that backward writes, the node of its value when backward ended.
    """

    recorder: Recorder
    results: list[fx.Node]
    new_values: list[fx.Node]
    live_values: list[fx.Node]


def remove_mutations(
    recorded: Recorder,
    results: Sequence[fx.Node],
    written: Sequence[fx.Node],
    bases: Sequence[Base] = (),
    node_of_slot: Mapping[int, fx.Node] | None = None,
    live: Sequence[fx.Node] = (),
) -> Functional:
    """Runs a recorded graph again under `torch.func.functionalize`, with a new recorder.

    Only dense leaves take part: wrappers are gone from a recorded graph.

    Args:
        recorded: The recorder of the graph as written.
        results: Nodes whose values are wanted at the end.
        written: Placeholders whose values are wanted as they are at the end of the forward.
        bases: Storages that stand for several placeholders. See Note [Shared storage].
        node_of_slot: The placeholders of the flat slots of `bases`.
        live: Placeholders that backward writes. It reads them as they are when it runs, so each becomes one more
            input, after the tangents.
    """
    recorder = Recorder(recorded.decompositions)  # the form of `t_` without mutation may be one of them
    reshaped = {leaf.tag for leaf, *_ in recorded.reshaped if isinstance(leaf, MetaTensor)}.intersection(
        n for n in recorded.graph.nodes if n.op == "placeholder"
    )
    placeholders = [n for n in recorded.graph.nodes if n.op == "placeholder"]

    def replay(*leaves: MetaTensor) -> list[Any]:
        values: dict[fx.Node, Any] = dict(zip(placeholders, leaves, strict=False))
        storages = leaves[len(placeholders) : len(placeholders) + len(bases)]
        live_leaves = leaves[len(placeholders) + len(bases) :]
        for base, storage in zip(bases, storages, strict=True):
            for slot in base.slots:
                node = (node_of_slot or {})[slot]
                spec = node.meta["spec"]
                values[node] = storage.as_strided(spec.size, spec.stride, spec.offset)
        end_values = [values[n] for n in written] + list(storages)
        for node in reshaped:  # what they look like changes, what they are views of does not
            values[node] = torch.ops.aten.alias.default(values[node])
        snapshots: list[Any] | None = None
        for node in recorded.graph.nodes:
            if node.op == "placeholder":
                continue
            phase = "backward" if node.meta["partitioner_tag"] == "is_backward" else "forward"
            if phase == "backward" and snapshots is None:
                snapshots = [x.clone() for x in end_values]
                recorder.phase = "backward"
                values.update(zip(live, live_leaves, strict=True))
            recorder.stack_of = lambda text=node.meta["stack_trace"]: text
            if node.op == "get_attr":
                values[node] = recorder.constant(node.target, recorded.constants[node.target])
            elif node.target is operator.getitem:
                values[node] = values[node.args[0]][node.args[1]]
            else:
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = replay_operator(recorder.graph, node.target, args, kwargs)
        if snapshots is None:
            snapshots = [x.clone() for x in end_values]
        return [values[n] for n in results] + snapshots + [x.clone() for x in live_leaves]

    with recorder:
        leaves = []
        for node in placeholders:
            recorder.phase = "backward" if is_tangent(node) else "forward"
            leaves.append(recorder.placeholder(node.target, node.meta["spec"], node.meta["meaning"]))
        recorder.phase = "forward"
        first_tangent = next((leaf.tag for leaf in leaves if is_tangent(leaf.tag)), None)
        for number, base in enumerate(bases, 1):
            leaf = recorder.placeholder(f"primals_base_{number}", base.spec, "a storage that several leaves share")
            if first_tangent is not None:
                first_tangent.prepend(leaf.tag)
            leaves.append(leaf)
        recorder.phase = "backward"
        for number, node in enumerate(live, 1):
            meaning = f"{node.meta['meaning']} when backward runs"
            leaves.append(recorder.placeholder(f"tangents_live_{number}", node.meta["spec"], meaning))
        recorder.phase = "forward"
        with torch.no_grad():
            out = functionalize(replay, remove="mutations")(*leaves)
    nodes = [leaf.tag for leaf in out]
    _drop_write_backs(recorder.graph)
    snapshots = []
    for node in nodes[len(results) :]:
        snapshots.append(node.args[0])
        if not node.users:
            recorder.graph.erase_node(node)
    count = len(snapshots) - len(live)
    return Functional(recorder, nodes[: len(results)], snapshots[:count], snapshots[count:])


def is_tangent(node: fx.Node) -> bool:
    """True for a graph input that is a gradient."""
    return bool(node.meta["partitioner_tag"] == "is_backward")


def _drop_write_backs(graph: fx.Graph) -> None:
    """Removes the `copy_` into each mutated input with which `functionalize` ends; the runtime writes back itself."""
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and node.target is torch.ops.aten.copy_.default:
            target = node.args[0]
            if target.op == "placeholder" and not node.users:
                graph.erase_node(node)
