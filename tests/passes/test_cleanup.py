"""What nobody reads goes from a graph, and nothing else does."""

from __future__ import annotations

import torch
from torch import fx

from subclass_aot.passes import drop_dead, drop_identities

aten = torch.ops.aten


def targets(graph: fx.Graph) -> list[str]:
    return [str(node.target).removeprefix("aten.") for node in graph.nodes if node.op == "call_function"]


def test_what_nobody_reads_goes_with_all_that_only_it_has_read() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    unread = graph.call_function(aten.sin.default, (x,))
    graph.call_function(aten.cos.default, (unread,))
    graph.output((graph.call_function(aten.neg.default, (x,)),))
    drop_dead(graph)
    assert targets(graph) == ["neg.default"]
    assert [node.name for node in graph.find_nodes(op="placeholder")] == ["x"], "inputs stay"


def test_what_does_more_than_compute_its_result_stays() -> None:
    """Later draws depend on this one, and a write is seen by whoever has the tensor."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(aten.rand_like.default, (x,))
    graph.call_function(aten.mul_.Tensor, (x, 2))
    graph.output(())
    drop_dead(graph)
    assert targets(graph) == ["rand_like.default", "mul_.Tensor"]


def test_identities_are_passed_by() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    detached = graph.call_function(aten.detach.default, (x,))
    alias = graph.call_function(aten.alias.default, (detached,))
    graph.output((graph.call_function(aten.view.default, (alias, [-1])), detached))
    drop_identities(graph)
    assert targets(graph) == ["view.default"]
    (view, result), (read,) = graph.output_node().args[0], graph.find_nodes(op="placeholder")  # type: ignore[misc]
    assert view.args[0] is read and result is read
