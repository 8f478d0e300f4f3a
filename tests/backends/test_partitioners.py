"""Partitioners as AOTAutograd has them get fake tensors, and graphs come back as they were."""

from __future__ import annotations

from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition

from subclass_aot import MetaTensor, aot_compile
from subclass_aot.backends.partitioners import as_partition
from subclass_aot.engine.compilers import of_partitioner


def test_it_fills_the_place_of_the_engine() -> None:
    assert of_partitioner._function is as_partition


def test_graphs_that_come_back_have_tensors_without_data_of_this_library() -> None:
    seen: list[Any] = []

    def partition(joint: Any, inputs: Any, **options: Any) -> Any:
        made = min_cut_rematerialization_partition(joint, inputs, **options)
        seen.append(made)
        return made

    x = torch.rand(3, requires_grad=True)
    compiled = aot_compile(lambda x: x.sin().cos(), partition_fn=partition)
    compiled(x).sum().backward()
    assert x.grad is not None and torch.allclose(x.grad, -x.sin().sin() * x.cos())
    vals = [node.meta["val"] for graph in seen[0] for node in graph.graph.nodes if "spec" in node.meta]
    assert vals and {type(val) for val in vals} == {MetaTensor}
