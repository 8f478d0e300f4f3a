"""From a joint trace to the two graphs that are compiled."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot.backends import example_inputs, fake_of, map_leaves, solver_of
from subclass_aot.errors import CompilerResultError
from subclass_aot.graph import default_partition, is_symint
from subclass_aot.meta import Spec, new_leaf
from subclass_aot.operators import effects_of
from subclass_aot.runtime.value_checks import is_in_parts, with_checks
from subclass_aot.trace import JointSignature, JointTrace

PartitionFn = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
"""`(joint, joint_inputs, *, num_fwd_outputs)` to forward and backward graph, as torch's partitioners."""


@dataclass(frozen=True, slots=True, eq=False)
class Graphs:
    """The graphs of one signature.

    Attributes:
        forward: Inputs: the leaves. Outputs: computed leaves, saved tensors, saved numbers. Writes into inputs at its
            end.
        backward: Inputs: saved numbers, saved tensors, then the tangent leaves. Outputs: the gradient leaves. None
            without gradients.
        saved_inputs: For each saved tensor: the graph input it is (its position), or None if forward computed it.
        saved_outputs: For each saved tensor, the position of the computed leaf that it is, or None.
        num_saved_symints: How many symbolic numbers are saved.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule | None
    saved_inputs: tuple[int | None, ...]
    saved_outputs: tuple[int | None, ...]
    num_saved_symints: int
    fresh_alias: tuple[bool, ...]
    """For each computed leaf, whether it is an input or another output, and must be given out as another object."""
    is_view: tuple[bool, ...]
    """For each computed leaf, whether the graph makes it with a view operator."""


def split(trace: JointTrace, partition_fn: PartitionFn | None, free_strides: bool = False) -> Graphs:
    """Partitions the joint graph and puts the writes into inputs at the end of forward.

    Args:
        trace: What was traced.
        partition_fn: What splits its graph.
        free_strides: Whether the compiler may choose the strides of what is saved. Those of results are eager's.

    Raises:
        CompilerResultError: The partitioner returned graphs that do not fit together.
    """
    signature = trace.signature
    joint = trace.graph_module
    backward: fx.GraphModule | None
    if signature.needs_backward:
        partition = default_partition if partition_fn is None else _with_fakes(partition_fn)
        forward, backward = partition(joint, [], num_fwd_outputs=signature.num_forward_outputs)
    else:
        forward, backward = joint, None
    graphs = _with_writes(trace, forward, backward)
    _report_static(graphs, signature)
    if free_strides and not is_in_parts(graphs.forward):  # each has strides of its own
        graphs.forward.meta["free_outputs"] = frozenset(_only_saved(graphs))
    return graphs


def _only_saved(graphs: Graphs) -> Iterator[int]:
    """The outputs of forward that nobody sees but backward, of known size: no inputs, and no results."""
    outputs: Any = graphs.forward.graph.output_node().args[0]
    computed = len(graphs.fresh_alias)
    for i, known in enumerate(zip(graphs.saved_inputs, graphs.saved_outputs, strict=True), computed):
        if known == (None, None) and outputs[i].meta["spec"].solver is None:
            yield i


def backward_inputs(graphs: Graphs, backward: fx.GraphModule) -> list[Any]:
    """Example inputs for a backward graph: what is saved has the strides that the compiled forward graph gives it.

    Args:
        graphs: The graphs of the signature, forward compiled.
        backward: Its backward graph, or another one that reads the same and takes other tangents.
    """
    inputs = example_inputs(backward)
    strides = graphs.forward.meta.get("output_strides", ())
    for output in graphs.forward.meta.get("free_outputs", ()):
        position = output - len(graphs.fresh_alias) + graphs.num_saved_symints
        spec, stride = inputs[position].spec, strides[output]
        if stride is not None and stride != spec.stride:
            inputs[position] = new_leaf(Spec.make(spec.size, stride, 0, spec.dtype, spec.device, spec.layout))
    return inputs


def _with_fakes(partition_fn: PartitionFn) -> PartitionFn:
    """Torch's partitioners look for fake tensors in `meta["val"]`: while one runs, they stand there, one per spec."""

    def partition(joint: fx.GraphModule, _: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        mode = _torch.fake_mode(solver_of(joint))
        fake = functools.cache(lambda spec: fake_of(spec, mode))
        own = {n.name: n.meta["val"] for n in joint.graph.nodes if "val" in n.meta}
        for node in joint.graph.nodes:
            if node.name in own:
                node.meta["val"] = map_leaves(fake, own[node.name])
        inputs = [n.meta["val"] for n in joint.graph.nodes if n.op == "placeholder"]
        graphs = partition_fn(joint, inputs, **options)
        for graph in (joint, *graphs):
            for node in graph.graph.nodes:
                if node.name in own:
                    node.meta["val"] = own[node.name]
        return graphs

    return partition


def _with_writes(trace: JointTrace, forward: fx.GraphModule, backward: fx.GraphModule | None) -> Graphs:
    signature = trace.signature
    graph = forward.graph
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    leaf_count = len(signature.graph_slots)
    if len(placeholders) != leaf_count + len(signature.bases):
        raise CompilerResultError(
            f"The forward graph of the partitioner has {len(placeholders)} inputs, but the call has "
            f"{leaf_count + len(signature.bases)} leaves. A partitioner must keep every input of forward."
        )
    input_of = dict(zip(signature.graph_slots, placeholders, strict=False))
    targets = [input_of[slot] for slot in signature.mutated_leaves] + placeholders[leaf_count:]
    output = graph.output_node()
    outputs: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    count = len(targets)
    new_values, computed, saved = (
        outputs[:count],
        outputs[count : signature.num_forward_outputs],
        outputs[signature.num_forward_outputs :],
    )
    num_symints = sum(map(is_symint, saved))
    saved, numbers = saved[: len(saved) - num_symints], saved[len(saved) - num_symints :]
    untouched = [input_of[slot] for slot in signature.untouched if slot in input_of]
    with graph.inserting_before(output):
        for i, node in enumerate(saved):
            if node in targets or node in untouched:  # backward wants it as it was, and the caller writes it, too
                saved[i] = _copy_of(graph, node)
        for target, value in zip(targets, new_values, strict=True):
            if value is not target:
                node = graph.call_function(torch.ops.aten.copy_.default, (target, value))
                node.meta = dict(target.meta)
    output.args = ((*computed, *saved, *numbers),)
    with_checks(forward, signature, computed)
    position = {n: i for i, n in enumerate(placeholders)}
    first: dict[Any, int] = {}
    for i, node in enumerate(computed):
        first.setdefault(node, i)
    return Graphs(
        forward=forward,
        backward=backward,
        saved_inputs=tuple(position.get(n) for n in saved),
        saved_outputs=tuple(first.get(n) for n in saved),
        num_saved_symints=num_symints,
        fresh_alias=tuple(
            isinstance(n, fx.Node) and not is_symint(n) and (n in position or first[n] != i)
            for i, n in enumerate(computed)
        ),
        is_view=tuple(map(_is_view, computed)),
    )


def _report_static(graphs: Graphs, signature: JointSignature) -> None:
    """Tells compilers, in `meta`, which graph inputs stay in place; in backward, those of forward that are saved."""
    static = signature.static_input_indices
    _mark_inputs(graphs.forward, static)
    if graphs.backward is not None:
        tensors = enumerate(graphs.saved_inputs, graphs.num_saved_symints)
        saved = [i for i, position in tensors if position in static]
        count = sum(n.op == "placeholder" for n in graphs.backward.graph.nodes)
        live = enumerate(signature.backward_writes, count - len(signature.backward_writes))  # they come last
        saved += [i for i, slot in live if signature.graph_slots.index(slot) in static]
        _mark_inputs(graphs.backward, tuple(saved))


def _mark_inputs(graph: fx.GraphModule, static: tuple[int, ...]) -> None:
    graph.meta["static_input_indices"] = static
    for i, node in enumerate(n for n in graph.graph.nodes if n.op == "placeholder"):
        node.meta["is_static_input"] = i in static


def _is_view(node: Any) -> bool:
    """Whether a view operator, such as `t` or `split`, made an output of a graph."""
    while isinstance(node, fx.Node) and node.target is operator.getitem:
        node = node.args[0]
    if not isinstance(node, fx.Node) or not _torch.is_overload(node.target):
        return False
    return any(viewed is not None for viewed in effects_of(node.target).returns_view_of)


def _copy_of(graph: fx.Graph, node: fx.Node) -> fx.Node:
    copy = graph.call_function(torch.ops.aten.clone.default, (node,))
    copy.meta = dict(node.meta)
    return copy
