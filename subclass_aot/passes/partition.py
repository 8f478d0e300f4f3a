"""The default partition: forward computes, saves what backward reads, and nothing costly is done twice.

Linear in the size of the graph. For trading memory against recomputation, pass
`functorch.compile.min_cut_rematerialization_partition`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from torch import fx

from subclass_aot import _torch
from subclass_aot.descriptors import describe_last, descriptor_of
from subclass_aot.passes.nodes import copied_node, draws, is_backward, is_symint, must_run, viewed_by


def default_partition(
    joint: fx.GraphModule, joint_inputs: Sequence[object], *, num_fwd_outputs: int, **options: object
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Splits a joint graph by the phase its nodes were recorded in.

    Views are redone in backward from what they view: they cost nothing, and their base is alive anyway.

    Args:
        joint: The joint graph; nodes carry `meta["partitioner_tag"]`. It is not changed.
        joint_inputs: Not looked at; AOTAutograd's partitioners have it, and this one can stand in their place.
        num_fwd_outputs: How many of the joint graph's outputs belong to forward.
        **options: Options of other partitioners; not looked at.

    Returns:
        The forward graph, whose outputs are followed by saved tensors and then by saved numbers, and the backward
        graph, whose inputs are saved numbers, saved tensors, and then the tangents.
    """
    outputs: Any = joint.graph.output_node().args[0]
    forward_outputs, gradients = outputs[:num_fwd_outputs], outputs[num_fwd_outputs:]
    backward = _backward_nodes(joint.graph, gradients)
    saved, redone = _what_to_save(joint.graph, backward, {n for n in gradients if isinstance(n, fx.Node)})
    symints = [n for n in saved if is_symint(n)]
    saved = [n for n in saved if not is_symint(n)]
    return _forward(joint, forward_outputs, saved + symints), _backward(
        joint, backward, symints + saved, redone, gradients
    )


def backward_from(joint: fx.GraphModule, saved: Sequence[str], *, num_fwd_outputs: int) -> fx.GraphModule:
    """The backward graph for a forward that is compiled already, and saves what it saves.

    Args:
        joint: A joint graph with that forward.
        saved: The names of the nodes that are saved, in order.
        num_fwd_outputs: How many of the joint graph's outputs belong to forward.

    Raises:
        LookupError: Backward needs something that does not follow from what is saved; it is named.
    """
    gradients: Any = joint.graph.output_node().args[0][num_fwd_outputs:]  # type: ignore[index]
    backward = _backward_nodes(joint.graph, gradients)
    nodes = {n.name: n for n in joint.graph.nodes}
    kept = [nodes[name] for name in saved]
    redone: set[fx.Node] = set()
    todo = [n for n in (*backward, *gradients) if isinstance(n, fx.Node) and not is_backward(n)]
    todo += [n for node in backward for n in node.all_input_nodes if not is_backward(n)]
    while todo:
        node = todo.pop()
        if node in redone or node in kept:
            continue
        if node.op == "placeholder" or draws(node):
            raise LookupError(str(descriptor_of(node) or f"the result of {node.target}"))
        redone.add(node)
        todo.extend(node.all_input_nodes)
    return _backward(joint, backward, kept, [n for n in joint.graph.nodes if n in redone], gradients)


def _backward_nodes(graph: fx.Graph, gradients: Sequence[Any]) -> set[fx.Node]:
    """Backward nodes that the gradients need, or that run in any case."""
    found: set[fx.Node] = set()
    todo = [n for n in gradients if isinstance(n, fx.Node) and is_backward(n)]
    todo += [n for n in graph.nodes if must_run(n) and is_backward(n)]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(n for n in node.all_input_nodes if is_backward(n) and n not in found)
    return found


def _what_to_save(
    graph: fx.Graph, backward: set[fx.Node], gradients: set[fx.Node]
) -> tuple[list[fx.Node], list[fx.Node]]:
    """Forward nodes to save, and views to redo, both in graph order. Some may be gradients as they are."""
    saved: set[fx.Node] = set()
    redone: set[fx.Node] = set()
    for node in graph.nodes:
        if is_backward(node) or node.op == "output":
            continue
        if not any(user in backward for user in node.users) and node not in gradients:
            continue
        while node not in redone and (base := _base(node)) is not None:
            redone.add(node)
            saved.update(n for n in node.all_input_nodes if is_symint(n))
            node = base
        if node.op == "get_attr":
            redone.add(node)
        elif node not in redone:
            saved.add(node)
    order = [n for n in graph.nodes if n in saved or n in redone]
    return [n for n in order if n in saved], [n for n in order if n in redone and n not in saved]


def _base(node: fx.Node) -> fx.Node | None:
    """What a node is a view of; None if it computes something."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        producer: Any = node.args[0]
        return producer if producer.target is not operator.getitem and viewed_by(producer) is not None else None
    return viewed_by(node)


def _forward(joint: fx.GraphModule, outputs: Sequence[Any], saved: list[fx.Node]) -> fx.GraphModule:
    needed: set[fx.Node] = set()
    todo = [n for n in (*outputs, *saved) if isinstance(n, fx.Node)]
    todo += [n for n in joint.graph.nodes if (draws(n) or must_run(n)) and not is_backward(n)]
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
    graph.output(tuple(copied[n] if isinstance(n, fx.Node) else n for n in (*outputs, *saved)))
    return _torch.make_graph_module(joint, graph, "Forward")


def _backward(
    joint: fx.GraphModule,
    needed: set[fx.Node],
    saved: list[fx.Node],
    redone: list[fx.Node],
    gradients: Sequence[Any],
) -> fx.GraphModule:
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in saved:
        placeholder = copied[node] = graph.placeholder(node.name)
        placeholder.meta = dict(node.meta)
    for node in joint.graph.nodes:
        if node.op == "placeholder" and is_backward(node):
            copied[node] = copied_node(graph, node, copied)
    for node in redone:
        copied[node] = copied_node(graph, node, copied)
    for node in joint.graph.nodes:
        if node in needed and node not in copied:
            copied[node] = copied_node(graph, node, copied)
    output = graph.output(tuple(copied[n] if isinstance(n, fx.Node) else n for n in gradients))
    describe_last(output, joint.graph.output_node(), len(gradients))
    return _torch.make_graph_module(joint, graph, "Backward")
