"""Which lines of the user's a node names."""

from __future__ import annotations

import torch

from subclass_aot import MetaTensor
from tests.engine.graph.recording import gone_backward, recorded


def last_lines(nodes: list[torch.fx.Node]) -> dict[str, str]:
    return {node.name: node.meta["stack_trace"].rsplit("# ", 1)[-1] for node in nodes}


def test_lines_of_forward_and_those_that_gradients_belong_to() -> None:
    def program(x: MetaTensor) -> tuple[MetaTensor, torch.Tensor]:
        x.requires_grad_()
        y = x.sin()  # first
        return x, y.exp()  # second

    forward, (x, y) = recorded(program)
    fork, _ = gone_backward(forward, lambda tangent: torch.autograd.grad(y, x, tangent))
    lines = last_lines(fork.in_order())
    assert (lines["sin"], lines["exp"]) == ("first", "second")
    own = [node for node in fork.in_order() if node not in forward.nodes and node.op != "placeholder"]
    assert set(last_lines(own).values()) == {"first", "second"} and lines["cos"] == "first"


def test_lines_that_are_given() -> None:
    recorder, x = recorded(torch.sin)
    recorder.listeners.stack_traces.given = "# given"
    with recorder:
        x.cos()
        x.split(1)
    assert [n.meta["stack_trace"] for n in recorder.in_order()[2:]] == ["# given"] * 5
