"""Makes a graph of a part of another one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch import fx

from subclass_aot.base import _torch
from subclass_aot.engine.descriptors import describe, descriptor_of
from subclass_aot.engine.passes.nodes import copied_node


def part_of_graph(
    module: fx.GraphModule, inputs: Collection[int], optional: Collection[int], outputs: Sequence[int]
) -> tuple[fx.GraphModule, list[int]]:
    """Returns a graph of what some of the outputs need, and the positions of the inputs that it has.

    Args:
        module: The whole graph. What it has in `meta` of inputs and outputs, the part has.
        inputs: The positions of inputs that the part has in any case.
        optional: Those of inputs that it has if it reads them. It reads no others.
        outputs: The positions of its outputs.
    """
    output = module.graph.output_node()
    values: Any = output.args[0]
    results = [values[i] for i in outputs]
    needed: set[fx.Node] = set()
    todo = [n for n in results if isinstance(n, fx.Node)]
    while todo:
        node = todo.pop()
        if node not in needed:
            needed.add(node)
            todo.extend(node.all_input_nodes)
    placeholders = module.graph.find_nodes(op="placeholder")
    kept = [i for i, n in enumerate(placeholders) if i in inputs or i in optional and n in needed]
    copied: dict[fx.Node, fx.Node] = {}
    graph = fx.Graph()
    there = {placeholders[i] for i in kept}
    for node in module.graph.nodes:
        if node in there or node in needed:
            copied[node] = copied_node(graph, node, copied)
    made = graph.output(tuple(copied[n] if isinstance(n, fx.Node) else n for n in results))
    described = descriptor_of(output)
    describe(made, tuple(described[i] for i in outputs))
    part = _torch.graphs.make_graph_module(module, graph, type(module).__name__)
    part.meta.update(module.meta)
    static = module.meta.get("static_input_indices", ())
    part.meta["static_input_indices"] = tuple(new for new, old in enumerate(kept) if old in static)
    return part, kept
