"""Random programs of several results that go backward one after the other."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase

from tests.fuzz.captured import captured
from tests.fuzz.losses import KINDS, STATEMENTS, DrawnLosses, check_losses, losses

OPTIONS = hypothesis.settings(
    max_examples=25,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_each_statement(statement: str, kind: str) -> None:
    lines = (statement.format("v[0]", "v[1]"), "v.append(v[1].exp())")
    check_losses(DrawnLosses(kind, ("leaf", "computed"), lines, ((1, False), (0, False), (2, False))))


@pytest.mark.parametrize("seed, count", [(1, 15), *(pytest.param(s, 600, marks=pytest.mark.long) for s in (2, 3))])
def test_programs(seed: int, count: int) -> None:
    @hypothesis.seed(seed)
    @hypothesis.given(losses())
    @hypothesis.settings(OPTIONS, max_examples=count)
    def check(drawn: DrawnLosses) -> None:
        check_losses(drawn)

    check()


@pytest.mark.usefixtures("fresh_dynamo")
def test_behind_torch_compile() -> None:
    lines = ("v.append(v[0] * v[1])", "v.append(v[1].exp())")
    check_losses(DrawnLosses("wrapper", ("leaf", "leaf"), lines, ((1, False), (0, False))), captured)


def test_a_difference_is_found() -> None:
    drawn = DrawnLosses(
        "dense", ("leaf", "leaf"), ("v.append(v[0] * v[1])", "v.append(v[1].exp())"), ((0, False), (1, False))
    )
    check_losses(drawn)
    with pytest.raises(AssertionError, match="size 4, step 1"):
        check_losses(drawn, lambda function: lambda *v: [x * 2 - x.detach() for x in function(*v)])
