"""What others get of a recorded graph: what somebody reads, and what does more than compute its result."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from subclass_aot.engine.passes import cleaned

aten = torch.ops.aten


def targets(graph: fx.Graph) -> list[str]:
    return [str(node.target).removeprefix("aten.") for node in graph.nodes if node.op == "call_function"]


def clean(graph: fx.Graph, *results: Any, without: Any = ()) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    before = str(graph)
    found = cleaned(list(graph.nodes), results, without)
    assert str(graph) == before, "what was recorded stays as it is"
    found[0].output(tuple(found[1].get(x, x) for x in results))
    found[0].lint()
    return found


def test_what_nobody_reads_goes_with_all_that_only_it_has_read() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    unread = graph.call_function(aten.sin.default, (x,))
    graph.call_function(aten.cos.default, (unread,))
    new, _ = clean(graph, graph.call_function(aten.neg.default, (x,)), 3)
    assert targets(new) == ["neg.default"] and new.output_node().args[0][1] == 3  # type: ignore[index]
    assert [node.name for node in clean(graph)[0].find_nodes(op="placeholder")] == ["x"], "inputs stay"


def test_what_does_more_than_compute_its_result_stays() -> None:
    """Later draws depend on this one, and a write is seen by whoever has the tensor."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(aten.rand_like.default, (x,))
    write = graph.call_function(aten.mul_.Tensor, (graph.call_function(aten.neg.default, (x,)), 2))
    assert targets(clean(graph)[0]) == ["rand_like.default", "neg.default", "mul_.Tensor"]
    assert targets(clean(graph, without={write})[0]) == ["rand_like.default"]
    assert targets(clean(graph, write, without={write})[0]) == ["rand_like.default", "neg.default", "mul_.Tensor"]


def test_what_has_no_result_stays() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(aten._assert_async.msg, (graph.call_function(aten.all.default, (x,)), "not all"))
    assert targets(clean(graph)[0]) == ["all.default", "_assert_async.msg"]


def test_identities_are_passed_by() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    detached = graph.call_function(aten.detach.default, (x,))
    alias = graph.call_function(aten.alias.default, (detached,))
    new, _ = clean(graph, graph.call_function(aten.view.default, (alias, [-1])), detached)
    assert targets(new) == ["view.default"]
    (view, result), (read,) = new.output_node().args[0], new.find_nodes(op="placeholder")  # type: ignore[misc]
    assert view.args[0] is read and result is read


def test_placeholders_come_first_under_the_names_they_were_given() -> None:
    """Several backwards of one forward have their tangents in one recorded graph."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(aten.sin.default, (x,))
    graph.placeholder("tangents_1").meta["desc"] = "of another backward"
    tangent = graph.placeholder("tangents_1")
    tangent.meta["desc"] = "of this one"
    product = graph.call_function(aten.mul.Tensor, (node, tangent))
    new, copies = cleaned([x, node, tangent, product], [product])
    assert [n.name for n in new.nodes] == ["x", "tangents_1", "sin_default", "mul_tensor"]
    assert copies[tangent].meta == {"desc": "of this one"}
