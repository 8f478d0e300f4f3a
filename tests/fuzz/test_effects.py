"""Random programs of operators that have effects."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.captured import captured
from tests.fuzz.effects import STEPS, DrawnEffects, check_effects, effects


@pytest.mark.parametrize("step", STEPS)
def test_each_step(step: str) -> None:
    grad = step != "branch"  # with gradients torch runs branches twice
    check_effects(DrawnEffects((step, "compute", step), grad, wrapped=False, min_cut=False))
    check_effects(DrawnEffects(("told", step), False, wrapped=False, min_cut=False))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(effects())
def test_as_in_eager_mode(drawn: DrawnEffects) -> None:
    check_effects(drawn)


def test_behind_torch_compile() -> None:
    check_effects(DrawnEffects(("ordered", "told", "the same twice", "compute"), True, False, False), captured)
