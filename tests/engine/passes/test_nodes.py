"""What a node of a recorded graph is."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from subclass_aot import trace_joint
from subclass_aot.engine.passes import draws, is_backward, is_symint, must_run
from subclass_aot.engine.passes.nodes import copied_node, has_no_result
from subclass_aot.engine.sizes import mark_dynamic


def program(x: torch.Tensor) -> Any:
    torch._assert_async(x.amax(), "zero")
    return torch.rand_like(x) * x, x.shape[0]


def test_each_question_is_true_of_its_nodes_alone() -> None:
    x = torch.rand(3, 2, requires_grad=True)
    mark_dynamic(x, 0)
    nodes = {node.name: node for node in trace_joint(program, x).graph_module.graph.nodes if node.op != "output"}
    assert [name for name, node in nodes.items() if draws(node)] == ["rand_like"]
    assert [name for name, node in nodes.items() if has_no_result(node)] == ["_assert_async"]
    assert [name for name, node in nodes.items() if must_run(node)] == ["_assert_async"]
    assert [name for name, node in nodes.items() if is_symint(node)] == ["sym_size_int"]
    assert [name for name, node in nodes.items() if is_backward(node)] == ["tangents_1", "mul_1"]


def test_of_a_node_of_another_library() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x.sin() + torch.rand(2)).graph
    assert not any(draws(node) or has_no_result(node) or is_symint(node) or is_backward(node) for node in graph.nodes)


def test_copies_are_those_of_torch() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", torch.Tensor)
    both = graph.call_function(torch.add, (x, [x, 2]), {"alpha": x})
    both.meta["val"] = 1
    mine, torchs = fx.Graph(), fx.Graph()
    copies = {"mine": {}, "torchs": {}}  # type: ignore[var-annotated]
    for node in graph.nodes:
        copies["mine"][node] = copied_node(mine, node, copies["mine"])
        copies["torchs"][node] = torchs.node_copy(node, copies["torchs"].__getitem__)
    assert str(mine) == str(torchs)
    for one, other in zip(mine.nodes, torchs.nodes, strict=True):
        assert (one.name, one.op, one.type, one.meta) == (other.name, other.op, other.type, other.meta)
    for one, other in zip(mine.nodes, torchs.nodes, strict=True):
        assert (type(one.args), type(one.kwargs)) == (type(other.args), type(other.kwargs))
        assert [[n.name for n in nodes] for nodes in (one.users, one.all_input_nodes)] == [
            [n.name for n in nodes] for nodes in (other.users, other.all_input_nodes)
        ]
    copies["mine"][both].meta["val"] = 2
    assert both.meta == {"val": 1}
