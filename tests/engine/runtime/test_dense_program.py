"""A call without its guard: a function of leaves."""

from __future__ import annotations

import torch

import subclass_aot as sa
from subclass_aot.engine.runtime.dense_program import write_dense_program


def test_runs_on_leaves_and_gives_results_their_structure() -> None:
    def f(x: torch.Tensor, w: sa.TwoTensor) -> dict[str, object]:
        x.add_(1)
        return {"sum": x + w.a, "same": x, "rows": x.shape[0]}

    compiled = sa.aot_compile(f)
    x, w = torch.zeros(3), sa.TwoTensor(torch.ones(3), torch.ones(3))
    specialization, arguments = compiled._specialization_for((x, w), {}), compiled._arguments_of((x, w), {})
    assert not x.any()  # nothing runs to compile
    graph = specialization.graphs.forward
    program = write_dense_program(specialization.signature, specialization.graphs, lambda inputs: graph(*inputs))
    leaves = arguments.plan.unwrap(arguments.values)
    found = program(leaves)
    assert found["sum"].equal(torch.full((3,), 2.0)) and found["same"] is leaves[0] and found["rows"] == 3
    assert x.equal(torch.ones(3))  # a write is in the graph
