"""Random optimizers of one's own: a few always, hundreds where there is time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, Phase

from subclass_aot.engine.compile import aot_compile
from tests.fuzz.captured import captured
from tests.fuzz.optimizers import LINES, DrawnOptimizer, check_optimizer, optimizers


@pytest.mark.parametrize(
    "seed, count",
    [(1, 8), *(pytest.param(seed, 150, marks=pytest.mark.long) for seed in (2, 3))],
)
def test_random_optimizers(seed: int, count: int) -> None:
    @hypothesis.seed(seed)
    @hypothesis.given(optimizers())
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    def check(drawn: DrawnOptimizer) -> None:
        check_optimizer(drawn)

    check()


@pytest.mark.parametrize("text", LINES)
@pytest.mark.parametrize("wraps", [False, True])
def test_each_line_runs_in_eager_mode(text: str, wraps: bool) -> None:
    """What fails in eager mode counts for nothing, so the compiler is called if the line runs."""
    called: list[object] = []
    check_optimizer(DrawnOptimizer((text,), (wraps,)), lambda run: called.append(run) or run)
    assert len(called) == 1


@pytest.mark.parametrize("wraps", [False, True])
def test_a_step_alone_over_parameters_of_several_sizes(wraps: bool) -> None:
    lines = ("state['mean'] = state['mean'] * 0.5 + g", "p.sub_(state['mean'] * 0.1)")
    check_optimizer(DrawnOptimizer(lines, (wraps,) * 3, rows=(2, 3, 1), is_alone=True))


def test_behind_torch_compile(fresh_dynamo: None) -> None:
    lines = ("state['mean'] = state['mean'] * 0.5 + g", "p.sub_(state['mean'] * 0.1)", "self.counts[p]['n'] += 1")
    check_optimizer(DrawnOptimizer(lines, (False, True)), captured)


def _forgetting(run: Callable[..., Any]) -> Callable[..., Any]:
    """As a compiler that loses what a step does to the Python objects below a tensor key."""
    optimizer: Any = next(
        c.cell_contents for c in run.__closure__ or () if isinstance(c.cell_contents, torch.optim.Optimizer)
    )

    def forgetting(x: torch.Tensor) -> torch.Tensor:
        counts = {p: dict(entries) for p, entries in optimizer.counts.items()}
        result: torch.Tensor = run(x)
        optimizer.counts.update(counts)
        return result

    return forgetting


@pytest.mark.parametrize("text", ["self.counts[p]['n'] += 1", "self.counts[p]['of'] = [g.sum()]"])
def test_what_is_lost_is_found(text: str) -> None:
    with pytest.raises(AssertionError, match="after step 1|the state has other parts"):
        check_optimizer(DrawnOptimizer((text,), (False,)), _forgetting)
    check_optimizer(DrawnOptimizer((text,), (False,)), aot_compile)
