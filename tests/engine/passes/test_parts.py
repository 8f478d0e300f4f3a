"""A graph of a part of another one: what it reads, what it computes, and what it is told of its inputs."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import trace_joint
from subclass_aot.engine.descriptors import descriptor_of
from subclass_aot.engine.passes import part_of_graph


def test_what_the_outputs_need() -> None:
    def program(a: Any, b: Any, c: Any) -> Any:
        shared = a.sin()
        return shared * 2, shared + b, c.exp()

    whole = trace_joint(program, *(torch.rand(3) for _ in range(3))).graph_module
    whole.meta["static_input_indices"] = (1, 2)
    part, kept = part_of_graph(whole, {2}, {0, 1}, [1])
    assert kept == [0, 1, 2] and part.meta["static_input_indices"] == (1, 2)
    targets = [n.target for n in part.graph.nodes if n.op == "call_function"]
    assert targets == [torch.ops.aten.sin.default, torch.ops.aten.add.Tensor]
    assert descriptor_of(part.graph.output_node()) == descriptor_of(whole.graph.output_node())[1:2]
    a, b = torch.rand(3), torch.rand(3)
    torch.testing.assert_close(part(a, b, None), (a.sin() + b,))
    part, kept = part_of_graph(whole, (), {0, 1, 2}, [0])
    assert kept == [0] and part.meta["static_input_indices"] == ()
    torch.testing.assert_close(part(a), (a.sin() * 2,))
    assert len(whole.graph.nodes) == 3 + 4 + 1
