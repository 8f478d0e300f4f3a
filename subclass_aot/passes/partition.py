"""The default partition: forward computes, saves what backward reads, and nothing costly is done twice.

Linear in the size of the graph. For trading memory against recomputation, pass
`functorch.compile.min_cut_rematerialization_partition`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx

from subclass_aot import _torch
from subclass_aot.descriptors import describe_last, descriptor_of
from subclass_aot.passes.nodes import copied_node, draws, is_backward, is_symint, must_run
from subclass_aot.passes.recompute import choose
from subclass_aot.passes.symbol_inputs import save_symbols


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
        joint_inputs: Not looked at; AOTAutograd's partitioners have it, and this one can stand in their place.
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
    exact = {n for n in gradients if isinstance(n, fx.Node) and not is_backward(n)}
    read = exact | {n for node in backward for n in node.all_input_nodes if not is_backward(n)}
    inputs = joint.graph.find_nodes(op="placeholder")
    static = {inputs[i] for i in static_lifetime_input_indices}
    choice = choose(joint.graph, read, exact, static, fuses)
    saved = [n for n in joint.graph.nodes if n in choice.saved and not is_symint(n)]
    symints = [n for n in joint.graph.nodes if n in choice.saved and is_symint(n)]
    forward_graph = _forward(joint, forward_outputs, saved + symints)
    backward_graph = _backward(joint, backward, symints + saved, choice.recomputed, gradients)
    save_symbols(forward_graph.graph, backward_graph.graph)
    return forward_graph, backward_graph


def backward_from(joint: fx.GraphModule, saved: Sequence[fx.Node], *, num_fwd_outputs: int) -> fx.GraphModule:
    """The backward graph for a forward that is compiled already, and saves what it saves.

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
        if node.op == "placeholder" or draws(node):
            raise LookupError(str(descriptor_of(node) or f"the result of {node.target}"))
        redone.add(node)
        todo.extend(node.all_input_nodes)
    return _backward(joint, backward, kept, redone, gradients)


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
    redone: set[fx.Node],
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
    for node in joint.graph.nodes:
        if node in needed and node not in copied:
            for part in _first_needed(node.all_input_nodes, redone, copied):
                copied[part] = copied_node(graph, part, copied)
            copied[node] = copied_node(graph, node, copied)
    for part in _first_needed([n for n in gradients if isinstance(n, fx.Node)], redone, copied):
        copied[part] = copied_node(graph, part, copied)
    output = graph.output(tuple(copied[n] if isinstance(n, fx.Node) else n for n in gradients))
    describe_last(output, joint.graph.output_node(), len(gradients))
    return _torch.make_graph_module(joint, graph, "Backward")


def _first_needed(nodes: Sequence[fx.Node], redone: set[fx.Node], done: Mapping[fx.Node, fx.Node]) -> list[fx.Node]:
    """What is redone for these nodes and was not yet, in the order in which it has to run."""
    found: dict[fx.Node, None] = {}
    todo = [n for n in reversed(nodes) if n in redone and n not in done]
    while todo:
        node = todo[-1]
        missing = [n for n in node.all_input_nodes if n in redone and n not in done and n not in found]
        if missing and node not in found:
            todo.extend(missing)
            continue
        todo.pop()
        found.setdefault(node)
    return list(found)
