"""The compiler "eager" is registered as anybody's is, and runs what stands in the graph."""

from __future__ import annotations

import torch

import subclass_aot as sa
from subclass_aot.engine.compilers import BACKENDS, compiled, example_inputs


def test_it_runs_the_graph_and_leaves_it_as_it_is() -> None:
    backend = BACKENDS["eager"]
    assert backend.one_by_one and backend.assumes_nothing and backend.takes_own
    joint = sa.trace_joint(lambda x: (x.sin() + 1).cos(), torch.ones(3))
    before = str(joint.graph_module.graph)
    x = torch.rand(3)
    (found,) = compiled(backend, joint.graph_module, example_inputs(joint.graph_module), False)([x])
    assert torch.equal(found, (x.sin() + 1).cos()) and str(joint.graph_module.graph) == before
