"""Draws that name a generator: one compilation serves all sizes, and draws what eager mode draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import aot_compile, trace_joint

DRAWS: dict[str, Any] = {
    "randn": lambda x, g: torch.randn((x.shape[0], 3), generator=g) * x,
    "rand on a device": lambda x, g: torch.rand(x.shape, generator=g, device=x.device) * x,
    "of a dtype": lambda x, g: torch.randn(*x.shape, generator=g, dtype=torch.float64) * x,
    "randint": lambda x, g: torch.randint(5, (x.shape[0], 3), generator=g) * x,
    "randint from": lambda x, g: torch.randint(2, 5, (x.shape[0], 3), generator=g) * x,
    "randperm": lambda x, g: x[torch.randperm(x.shape[0], generator=g)],
    "randn_like": lambda x, g: torch.randn_like(x, generator=g) * x,
    "rand_like": lambda x, g: torch.rand_like(x, generator=g) * x,
    "randint_like": lambda x, g: torch.randint_like(x, 2, 7, generator=g) * x,
    "normal": lambda x, g: torch.normal(0.0, 1.0, (x.shape[0], 3), generator=g) * x,
    "in place": lambda x, g: x.new_empty(x.shape[0], 3).uniform_(generator=g) * x,
    "a mask": lambda x, g: torch.bernoulli(x.clamp(0, 1), generator=g),
}


@pytest.mark.every_case
@pytest.mark.parametrize("given", [False, True], ids=["none", "the default one"])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_one_compilation_draws_what_eager_mode_draws(draw: Any, given: bool) -> None:
    def program(x: torch.Tensor) -> Any:
        return draw(x, torch.default_generator if given else None)

    compiled = aot_compile(program)
    for rows in (4, 5, 6, 9):
        x = torch.linspace(0, 1, rows * 3).view(rows, 3)
        torch.manual_seed(rows)
        expected = program(x)
        torch.manual_seed(rows)
        assert torch.equal(compiled(x), expected)
    assert len(compiled.recompiles) == 1


def test_without_a_generator_it_is_the_operator_that_has_none() -> None:
    trace = trace_joint(
        lambda x: torch.randn(x.shape, generator=None) + torch.rand_like(x, generator=None), torch.ones(2)
    )
    names = [str(node.target) for node in trace.graph_module.graph.nodes if node.op == "call_function"]
    assert "aten.randn.default" in names and "aten.rand_like.default" in names
