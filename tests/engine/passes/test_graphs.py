"""Copies of graphs, and graphs for tensors of any strides."""

from __future__ import annotations

import torch

import subclass_aot as sa
from subclass_aot.engine.passes import copied_graph, take_any_strides


def test_a_copy_may_be_changed() -> None:
    table = torch.arange(3.0)
    joint = sa.trace_joint(lambda x: (x.sin() * torch.tensor([1.0, 2.0, 3.0])).sum(), torch.rand(3, requires_grad=True))
    graph = joint.graph_module
    graph.meta["noted"] = 1
    code, metas = graph.code, [dict(node.meta) for node in graph.graph.nodes]
    copy = copied_graph(graph)
    assert copy.code == code and copy.meta["noted"] == 1
    assert [dict(node.meta) for node in copy.graph.nodes] == metas
    given = [table, torch.ones(())]
    assert all(a.equal(b) for a, b in zip(copy(*given), graph(*given), strict=True))
    (constant,) = copy.graph.find_nodes(op="get_attr")
    assert getattr(copy, constant.target) is getattr(graph, constant.target)
    for node in copy.graph.nodes:
        node.meta.clear()
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default
    copy.recompile()
    assert graph.code == code and [dict(node.meta) for node in graph.graph.nodes] == metas
    assert not copy(*given)[0].equal(graph(*given)[0])


def test_a_graph_takes_tensors_of_any_strides() -> None:
    graph = copied_graph(sa.trace_joint(lambda x: x.view(-1) * 2, torch.rand(2, 3)).graph_module)
    x = torch.rand(3, 2).t()
    take_any_strides(graph)
    assert graph(x)[0].equal(x.reshape(-1) * 2)
