"""The default partition: forward computes, saves what backward reads, and nothing costly is done twice.

Linear in the size of the graph. For trading memory against recomputation, pass
`functorch.compile.min_cut_rematerialization_partition`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.engine.descriptors import describe_last, descriptor_of
from subclass_aot.engine.passes.nodes import copied_node, draws, is_backward, is_symint, must_run
from subclass_aot.engine.passes.recompute import choose, recomputed_by_the_program
from subclass_aot.engine.passes.symbol_inputs import save_symbols
from subclass_aot.meta import Spec, new_leaf

_aten = torch.ops.aten


def default_partition(
    joint: fx.GraphModule,
    joint_inputs: Sequence[object],
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: Sequence[int] = (),
    fuses: bool = False,
    **options: object,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Splits a joint graph by the phase its nodes were recorded in.

    Views are redone in backward from what they view, and so is what is cheaper to compute than to keep: see
    Note [Recomputation].

    Args:
        joint: The joint graph; nodes carry `meta["partitioner_tag"]`. It is not changed.
        joint_inputs: Not read; AOTAutograd's partitioners have it, and this one can stand in their place.
        num_fwd_outputs: How many of the joint graph's outputs belong to forward.
        static_lifetime_input_indices: The inputs that are parameters and buffers, and that forward does not write.
        fuses: Whether the compiler runs cheap operators together with those that read them.
        **options: Options of other partitioners; ignored.

    Returns:
        The forward graph, whose outputs are followed by saved tensors and then by saved numbers, and the backward
        graph, whose inputs are saved numbers, saved tensors, and then the tangents.
    """
    outputs: Any = joint.graph.output_node().args[0]
    forward_outputs, gradients = outputs[:num_fwd_outputs], outputs[num_fwd_outputs:]
    backward = _backward_nodes(joint.graph, gradients)
    inputs = joint.graph.find_nodes(op="placeholder")
    static = {inputs[i] for i in static_lifetime_input_indices}
    choice = choose(joint.graph, backward, gradients, static, fuses)
    of_forward = [n for n in joint.graph.nodes if n in choice.saved and not is_backward(n)]
    saved = [n for n in of_forward if not is_symint(n)]
    symints = [n for n in of_forward if is_symint(n)]
    forward_graph = _forward(joint, forward_outputs, saved + symints, choice.packed)
    backward_graph = _backward(joint, backward, symints + saved, choice.packed, choice.recomputed, gradients)
    save_symbols(forward_graph.graph, backward_graph.graph)
    return forward_graph, backward_graph


def backward_from(joint: fx.GraphModule, saved: Sequence[fx.Node], *, num_fwd_outputs: int) -> fx.GraphModule:
    """Returns the backward graph for a forward that is compiled already, and saves what it saves.

    Args:
        joint: A joint graph with that forward.
        saved: The nodes that are saved, in order, of that forward graph.
        num_fwd_outputs: How many of the joint graph's outputs belong to forward.

    Raises:
        LookupError: Backward needs something that does not follow from what is saved; it is named.
    """
    gradients: Any = joint.graph.output_node().args[0][num_fwd_outputs:]  # type: ignore[index]
    backward = _backward_nodes(joint.graph, gradients)
    nodes = {n.name: n for n in joint.graph.nodes}
    kept = [nodes.get(node.name, node) for node in saved]  # a symbol may be read where the joint graph does not
    redone: set[fx.Node] = set()
    todo = [n for n in (*backward, *gradients) if isinstance(n, fx.Node) and not is_backward(n)]
    todo += [n for node in backward for n in node.all_input_nodes if not is_backward(n)]
    while todo:
        node = todo.pop()
        if node in redone or node in kept:
            continue
        if node.op == "placeholder" or draws(node) or must_run(node):
            raise LookupError(str(descriptor_of(node) or f"the result of {node.target}"))
        redone.add(node)
        todo.extend(node.all_input_nodes)
    packed = {n for n, given in zip(kept, saved, strict=True) if _dtype(n) is not _dtype(given)}
    return _backward(joint, backward, kept, packed, redone, gradients)


def _backward_nodes(graph: fx.Graph, gradients: Sequence[Any]) -> set[fx.Node]:
    """Returns the backward nodes that the gradients need, or that run in any case."""
    found: set[fx.Node] = set()
    todo = [n for n in gradients if isinstance(n, fx.Node) and is_backward(n)]
    todo += [n for n in graph.nodes if is_backward(n) and must_run(n)]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(n for n in node.all_input_nodes if is_backward(n) and n not in found)
    return found


def _forward(
    joint: fx.GraphModule, outputs: Sequence[Any], saved: list[fx.Node], packed: set[fx.Node]
) -> fx.GraphModule:
    needed: set[fx.Node] = set()
    todo = [n for n in (*outputs, *saved) if isinstance(n, fx.Node)]
    todo += [n for n in joint.graph.nodes if not is_backward(n) and (draws(n) or must_run(n))]
    while todo:
        node = todo.pop()
        if node not in needed:
            needed.add(node)
            todo.extend(node.all_input_nodes)
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in joint.graph.nodes:
        if node in needed or (node.op == "placeholder" and not is_backward(node)):
            copied[node] = copied_node(graph, node, copied)
    results = [copied[n] if isinstance(n, fx.Node) else n for n in outputs]
    graph.output((*results, *(_cast(graph, copied[n], n, torch.bool) if n in packed else copied[n] for n in saved)))
    return _torch.graphs.make_graph_module(joint, graph, "Forward")


def _backward(
    joint: fx.GraphModule,
    needed: set[fx.Node],
    saved: list[fx.Node],
    packed: set[fx.Node],
    redone: set[fx.Node],
    gradients: Sequence[Any],
) -> fx.GraphModule:
    """Builds the backward graph. What does not depend on tangents runs just before what reads it.

    Args:
        joint: The joint graph.
        needed: Its backward nodes to run.
        saved: The forward nodes that are saved, in the order of the inputs.
        packed: Those of them that come in as booleans.
        redone: Forward nodes to run here, and backward nodes to run once more for what computes gradients.
        gradients: What backward returns.
    """
    graph = fx.Graph()
    again = recomputed_by_the_program(joint.graph, needed)
    copies = _Copies(graph, packed, redone, redone & again, again)
    for node in saved:
        copies.save(node)
    for node in joint.graph.nodes:
        if node.op == "placeholder" and is_backward(node):
            copies.add(node)
    for node in joint.graph.nodes:
        if node in needed and node not in again and node not in copies:
            copies.add(node)
    for node in gradients:
        if isinstance(node, fx.Node):
            copies.need(node, for_gradients=True)
    results = [copies[n] if isinstance(n, fx.Node) else n for n in gradients]
    output = graph.output(tuple(results))
    describe_last(output, joint.graph.output_node(), len(gradients))
    return _torch.graphs.make_graph_module(joint, graph, "Backward")


class _Copies:
    """The nodes of a joint graph in the backward graph that is made of it.

    A node that a checkpoint has computed again may stand there twice: early, for the rest of the checkpoint, and late,
    for gradients.

    Args:
        graph: The backward graph.
        packed: Saved nodes that come in as booleans.
        when_needed: Forward nodes that run when they are needed.
        twice: Backward nodes of which gradients get a copy of their own.
        of_program: Backward nodes that do not depend on tangents: they run when they are needed, too.
    """

    def __init__(
        self,
        graph: fx.Graph,
        packed: set[fx.Node],
        when_needed: set[fx.Node],
        twice: set[fx.Node],
        of_program: set[fx.Node],
    ) -> None:
        self.graph = graph
        self.packed = packed
        self.when_needed = when_needed | of_program
        self.twice = twice
        self.masks: dict[fx.Node, fx.Node] = {}
        self.first: dict[fx.Node, fx.Node] = {}
        self.second: dict[fx.Node, fx.Node] = {}

    def __contains__(self, node: fx.Node) -> bool:
        return node in self.first

    def __getitem__(self, node: fx.Node) -> fx.Node:
        """Returns what gradients read for a node."""
        return self.second[node] if node in self.twice else self.first[node]

    def save(self, node: fx.Node) -> None:
        """Appends an input for a node that is saved."""
        placeholder = self.graph.placeholder(node.name)
        is_mask = node in self.packed
        placeholder.meta = _meta_as(self.graph, node, torch.bool) if is_mask else _meta_of(self.graph, node)
        (self.masks if is_mask else self.first)[node] = placeholder

    def add(self, node: fx.Node) -> None:
        """Appends a node that depends on tangents, and before it what it reads."""
        for source in node.all_input_nodes:
            self.need(source, for_gradients=True)
        self.first[node] = copied_node(self.graph, node, self)

    def need(self, node: fx.Node, for_gradients: bool) -> None:
        """Appends a node that runs when it is needed, and before it what it reads, unless they are there."""
        todo = [(node, for_gradients)]
        while todo:
            node, late = todo[-1]
            late = late and node in self.twice
            there = self.second if late else self.first
            if node in there or (node not in self.when_needed and node not in self.masks):
                todo.pop()
                continue
            sources = [] if node in self.masks else [(n, late) for n in node.all_input_nodes]
            missing = [(n, x) for n, x in sources if not self._has(n, x)]
            if missing:
                todo.extend(reversed(missing))
                continue
            todo.pop()
            if node in self.masks:
                there[node] = _cast(self.graph, self.masks[node], node, _dtype(node))
            else:
                copies = self if late else self.first
                there[node] = copied_node(self.graph, node, copies)
                for part in node.users:  # else the whole tuple would live until the last of its results is needed
                    if part.target is operator.getitem and part in self.when_needed and (part in self.twice) == late:
                        there.setdefault(part, copied_node(self.graph, part, copies))

    def _has(self, node: fx.Node, late: bool) -> bool:
        if node not in self.when_needed and node not in self.masks:
            return True
        return node in (self.second if late and node in self.twice else self.first)


def _dtype(node: fx.Node) -> torch.dtype | None:
    return getattr(node.meta.get("spec"), "dtype", None)


def _meta_of(graph: fx.Graph, node: fx.Node) -> dict[str, Any]:
    """Returns the `meta` of a node for one of another graph."""
    meta: Any = node.meta
    return dict(meta) if type(meta) is dict else meta.copied_into(graph)


def _meta_as(graph: fx.Graph, node: fx.Node, dtype: torch.dtype | None) -> dict[str, Any]:
    """Returns the `meta` of a node for one of another graph that has another dtype."""
    meta: Any = node.meta
    spec = meta["spec"]
    spec = Spec.make(spec.size, spec.stride, spec.offset, dtype or spec.dtype, spec.device, spec.layout)
    if type(meta) is not dict:
        changed: dict[str, Any] = meta.changed_in(graph, spec, new_leaf(spec))
        return changed
    return {**meta, "spec": spec, "val": new_leaf(spec)}


def _cast(graph: fx.Graph, node: fx.Node, like: fx.Node, dtype: torch.dtype | None) -> fx.Node:
    """Appends a copy of `node` of another dtype, else as the node `like` of the joint graph."""
    cast = graph.call_function(_aten._to_copy.default, (node,), {"dtype": dtype})
    cast.meta = _meta_as(graph, like, dtype)
    return cast
