"""From a joint trace to the two graphs that are compiled."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.node import Argument

from subclass_aot.base import _torch
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.compilers import example_inputs, of_partitioner
from subclass_aot.engine.descriptors import (
    Gradient,
    InputDescriptor,
    LiveInput,
    MutatedInput,
    OutputDescriptor,
    SavedForBackward,
    describe,
    descriptor_of,
    outermost,
    undescribed,
)
from subclass_aot.engine.passes import check_inputs, default_partition, is_backward, is_symint, part_of_graph
from subclass_aot.engine.runtime.expanded_tangents import note_taken_expanded
from subclass_aot.engine.runtime.value_checks import is_in_parts, with_checks
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.trace import JointTrace
from subclass_aot.meta import Spec, new_leaf

PartitionFn = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
"""`(joint, joint_inputs, *, num_fwd_outputs)` to forward and backward graph, as torch's partitioners."""


class Saved(NamedTuple):
    """A tensor that is saved for backward.

    Attributes:
        input: The graph input that it is, by its position; None if forward computed it.
        output: The output of forward that it is, too, or None.
    """

    input: int | None
    output: OutputDescriptor | None


class Computed(NamedTuple):
    """The way in which forward made one of its outputs.

    Attributes:
        is_alias: Whether it is an input or another output, and must be given out as another object.
        is_view: Whether the graph makes it with a view operator.
    """

    is_alias: bool
    is_view: bool


@dataclass(frozen=True, slots=True, eq=False)
class Graphs:
    """The graphs of one signature. Their inputs and outputs have descriptors, as those of the joint graph.

    Attributes:
        forward: Inputs: the leaves. Outputs: what it computes, saved tensors, saved numbers. Writes into inputs at its
            end.
        backward: Inputs: saved numbers, saved tensors, then the tangent leaves. Outputs: the gradient leaves. None
            without gradients.
        computed: The outputs of forward that are not only saved.
        saved: The saved tensors.
        num_saved_symints: How many symbolic numbers are saved.
        of_whole: Which of the tensors that forward saves `saved` are, if backward is one of several parts.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule | None
    computed: Mapping[OutputDescriptor, Computed]
    saved: tuple[Saved, ...]
    num_saved_symints: int
    of_whole: tuple[int, ...] | None = None

    @staticmethod
    def without_trace(
        signature: JointSignature,
        forward: fx.GraphModule,
        backward: fx.GraphModule | None,
        computed: Mapping[OutputDescriptor, tuple[bool, bool]],
        saved: Sequence[tuple[int | None, OutputDescriptor | None]],
        num_saved_symints: int = 0,
    ) -> Graphs:
        """Returns the graphs of a signature, of what is known of them. Checks are put into forward.

        Args:
            signature: The signature.
            forward: The forward graph, without checks.
            backward: The backward graph.
            computed: See `computed`.
            saved: See `saved`.
            num_saved_symints: See `num_saved_symints`.
        """
        output = forward.graph.output_node()
        values: Any = output.args[0]
        with_checks(forward, signature, dict(zip(descriptor_of(output), values, strict=True)))
        made = {desc: Computed(*pair) for desc, pair in computed.items()}
        return Graphs(forward, backward, made, tuple(Saved(*pair) for pair in saved), num_saved_symints)

    def of_part(self, signature: JointSignature, number: int) -> Graphs:
        """Returns the graphs with one of the parts of backward. See Note [Parts of backward].

        Args:
            signature: The signature, of all parts.
            number: Which part.
        """
        assert self.backward is not None
        first = self.num_saved_symints
        place = first + len(self.saved)
        wanted = set(range(first))
        for tangent in signature.tangents:
            after = place + sum(isinstance(spec, Spec) for spec in tangent.specs)
            wanted |= set(range(place, after)) if tangent.output in signature.parts[number].ends else set()
            place = after
        descs = [outermost(desc) for desc in descriptor_of(self.backward.graph.output_node())]
        outputs = [i for i, desc in enumerate(descs) if isinstance(desc, Gradient) and desc.part == number]
        saved = range(first, first + len(self.saved))
        backward, kept = part_of_graph(self.backward, wanted, saved, outputs)
        of_whole = tuple(i - first for i in kept if i in saved)
        return dataclasses.replace(
            self, backward=backward, saved=tuple(self.saved[i] for i in of_whole), of_whole=of_whole
        )

    def tell_compilers(self, signature: JointSignature, free_strides: bool, one_by_one: bool = False) -> None:
        """Writes into `meta` what compilers may make use of: which inputs stay in place, which outputs are free.

        What one compiler notes of CUDA graphs is for the other one, too.

        Args:
            signature: The signature.
            free_strides: Whether the strides of what is only saved are left to the compiler of forward.
            one_by_one: Whether operators of backward run one by one.
        """
        _report_static(self, signature)
        if one_by_one and self.backward is not None:
            note_taken_expanded(self.backward.graph)
        shared = _torch.inductor.CudaGraphs(is_inference=self.backward is None)
        for graph in (self.forward, self.backward):
            if graph is not None:
                graph.meta["cuda_graphs"] = shared
        if free_strides and not is_in_parts(self.forward):  # each has strides of its own
            self.forward.meta["free_outputs"] = frozenset(_only_saved(self))


@_torch.plain_subclasses.classes_see("functions")  # compilers see them so, too
def split(trace: JointTrace, partition_fn: PartitionFn | None, fuses: bool = False) -> Graphs:
    """Partitions the joint graph and puts the writes into inputs at the end of forward.

    Args:
        trace: What was traced.
        partition_fn: What splits its graph; None for the default partition.
        fuses: Whether the compiler of backward runs cheap operators together with those that read them.

    Raises:
        CompilerResultError: The partitioner returned graphs that do not fit together.
    """
    signature = trace.signature
    joint = trace.graph_module
    backward: fx.GraphModule | None
    if signature.needs_backward:
        partition: PartitionFn
        if partition_fn is None:
            static = _unwritten_static_inputs(trace)
            partition = functools.partial(default_partition, fuses=fuses, static_lifetime_input_indices=static)
        else:
            partition = of_partitioner(partition_fn)
        forward, backward = partition(joint, [], num_fwd_outputs=trace.num_forward_outputs)
    else:
        forward, backward = joint, None
    return _with_writes(trace, forward, backward)


def _unwritten_static_inputs(trace: JointTrace) -> list[int]:
    """Returns the positions of the inputs that are static and that forward does not write."""
    outputs = descriptor_of(trace.graph_module.graph.output_node())
    written = {desc.input for desc in outputs if isinstance(desc, MutatedInput)}
    inputs = trace.graph_module.graph.find_nodes(op="placeholder")
    return [i for i in trace.signature.static_input_indices if descriptor_of(inputs[i]) not in written]


def _only_saved(graphs: Graphs) -> Iterator[int]:
    """Yields the outputs of forward that nobody sees but backward, of known size: no inputs, and no results."""
    outputs: Any = graphs.forward.graph.output_node().args[0]
    for i, saved in enumerate(graphs.saved, len(graphs.computed)):
        if saved == (None, None) and outputs[i].meta["spec"].solver is None:
            yield i


def backward_inputs(graphs: Graphs, backward: fx.GraphModule) -> list[Any]:
    """Returns example inputs for a backward graph: saved values have the strides that the compiled forward gives them.

    Args:
        graphs: The graphs of the signature, forward compiled.
        backward: Its backward graph, or another one that reads the same and takes other tangents.
    """
    inputs = example_inputs(backward)
    strides = graphs.forward.meta.get("output_strides", ())
    free = graphs.forward.meta.get("free_outputs", ())
    of_whole = range(len(graphs.saved)) if graphs.of_whole is None else graphs.of_whole
    for position, saved in enumerate(of_whole if free else (), graphs.num_saved_symints):
        output = len(graphs.computed) + saved
        if output not in free:
            continue
        spec, stride = inputs[position].meta_spec, strides[output]
        if stride is not None and stride != spec.stride:
            inputs[position] = new_leaf(Spec.make(spec.size, stride, 0, spec.dtype, spec.device, spec.layout))
    return inputs


def _with_writes(trace: JointTrace, forward: fx.GraphModule, backward: fx.GraphModule | None) -> Graphs:
    """Describes the inputs and outputs of both graphs, and puts writes and checks into forward."""
    placeholders = _describe_inputs(trace, forward)
    output = forward.graph.output_node()
    values: Any = output.args[0]
    descs = [desc for desc in descriptor_of(trace.graph_module.graph.output_node()) if not desc.is_backward]
    saved = list(values[len(descs) :])
    inputs = {descriptor_of(node): node for node in placeholders}
    outputs = dict(zip(descs, values, strict=False))
    writes = {inputs[desc.input]: outputs.pop(desc) for desc in descs if isinstance(desc, MutatedInput)}
    _write_back(forward.graph, writes, saved, _untouched(trace.signature, placeholders))
    output.args = ((*outputs.values(), *saved),)
    first: dict[Any, OutputDescriptor] = {}
    for desc, node in outputs.items():
        first.setdefault(node, desc)
    known = {**first, **{node: desc for desc, node in inputs.items()}}
    saved_descs = [SavedForBackward(i, known.get(node)) for i, node in enumerate(saved)]
    describe(output, (*outputs, *saved_descs))
    with_checks(forward, trace.signature, outputs)
    tensors = [node for node in saved if not is_symint(node)]
    if backward is not None:
        _describe_backward(trace, backward, saved_descs[len(tensors) :] + saved_descs[: len(tensors)])
    position = {n: i for i, n in enumerate(placeholders)}
    return Graphs(
        forward=forward,
        backward=backward,
        computed={
            desc: Computed(
                isinstance(n, fx.Node) and not is_symint(n) and (n in position or first[n] != desc), _is_view(n)
            )
            for desc, n in outputs.items()
        },
        saved=tuple(Saved(position.get(n), first.get(n)) for n in tensors),
        num_saved_symints=len(saved) - len(tensors),
    )


def _describe_inputs(trace: JointTrace, forward: fx.GraphModule) -> list[fx.Node]:
    """Returns the inputs of the forward graph, with the descriptors of those of the joint graph.

    Raises:
        CompilerResultError: The partitioner has dropped some.
    """
    given = trace.graph_module.graph.find_nodes(op="placeholder")
    descs = [descriptor_of(node) for node in given if not is_backward(node)]
    placeholders = forward.graph.find_nodes(op="placeholder")
    check_inputs(len(placeholders), len(descs))
    for node, desc in zip(placeholders, descs, strict=True):
        node.meta = dict(node.meta)  # a partitioner may give nodes of both graphs one dict
        describe(node, desc)
    return list(placeholders)


def _describe_backward(trace: JointTrace, backward: fx.GraphModule, saved: Sequence[SavedForBackward]) -> None:
    """Gives what comes in from forward the descriptors that it has there: numbers first, then tensors."""
    for node, desc in zip(backward.graph.find_nodes(op="placeholder"), saved, strict=False):
        node.meta = dict(node.meta)
        describe(node, desc)
    descs = descriptor_of(trace.graph_module.graph.output_node())
    describe(backward.graph.output_node(), tuple(desc for desc in descs if desc.is_backward))  # of any partitioner


def _untouched(signature: JointSignature, placeholders: Sequence[fx.Node]) -> set[fx.Node]:
    """Returns the leaves of inputs mutated under autograd that the program does not write: `copy_` writes them, too."""
    node_of, index_map = dict(zip(signature.graph_slots, placeholders, strict=False)), signature.index_map
    return {
        node_of[slot]
        for mutation in signature.mutations.of_inputs
        if mutation.new_value is not None
        for slot in index_map.flat_of(mutation.input)
        if slot in node_of and index_map.slots[slot].kind == "leaf" and slot not in mutation.mutated_leaves
    }


def _write_back(
    graph: fx.Graph, writes: Mapping[fx.Node, fx.Node], saved: list[fx.Node], untouched: set[fx.Node]
) -> None:
    """Appends the writes into inputs. What backward wants as it was is copied before."""
    with graph.inserting_before(graph.output_node()):
        for i, node in enumerate(saved):
            if node in writes or node in untouched:  # those are written outside of the graph
                saved[i] = _copy_of(graph, node)
        for target, value in writes.items():
            if value is not target:
                node = graph.call_function(torch.ops.aten.copy_.default, (target, value))
                node.meta = undescribed(target.meta)


def _report_static(graphs: Graphs, signature: JointSignature) -> None:
    """Tells compilers, in `meta`, which graph inputs stay in place; in backward, those of forward that are saved."""
    static = frozenset(signature.static_input_indices)
    _mark_inputs(graphs.forward, static)
    if graphs.backward is not None:
        inputs = graphs.forward.graph.find_nodes(op="placeholder")
        static_descs: set[InputDescriptor] = {LiveInput(descriptor_of(inputs[i])) for i in static}
        static_descs |= {SavedForBackward(i) for i, saved in enumerate(graphs.saved) if saved.input in static}
        descs = [descriptor_of(node) for node in graphs.backward.graph.find_nodes(op="placeholder")]
        _mark_inputs(graphs.backward, frozenset(i for i, desc in enumerate(descs) if desc in static_descs))


def _mark_inputs(graph: fx.GraphModule, static: frozenset[int]) -> None:
    graph.meta["static_input_indices"] = tuple(sorted(static))
    for i, node in enumerate(n for n in graph.graph.nodes if n.op == "placeholder"):
        node.meta["is_static_input"] = i in static


def _is_view(node: Argument) -> bool:
    """Returns whether a view operator, such as `t` or `split`, made an output of a graph."""
    while isinstance(node, fx.Node) and node.target is operator.getitem:
        node = node.args[0]
    if not isinstance(node, fx.Node) or not _torch.operators.is_overload(node.target):
        return False
    return any(viewed is not None for viewed in effects_of(node.target).returns_view_of)


def _copy_of(graph: fx.Graph, node: fx.Node) -> fx.Node:
    copy = graph.call_function(torch.ops.aten.clone.default, (node,))
    copy.meta = undescribed(node.meta)
    return copy
