"""Random programs that end with a view that has a gradient of its own: a few always, hundreds where there is time."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase

from tests.fuzz import Program, check_captured, check_program
from tests.fuzz.last_steps import last_steps
from tests.fuzz.oracle import check_call
from tests.fuzz.programs import Argument
from tests.fuzz.trees import Tree

OPTIONS = hypothesis.settings(
    max_examples=25,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("seed, count", [(1, 25), *(pytest.param(s, 200, marks=pytest.mark.long) for s in (2, 3))])
def test_random_programs(seed: int, count: int) -> None:
    @hypothesis.seed(seed)
    @hypothesis.given(last_steps())
    @hypothesis.settings(OPTIONS, max_examples=count)
    def check(program: Program) -> None:
        check_program(program)

    check()


@pytest.mark.usefixtures("fresh_dynamo")
def test_behind_dynamo() -> None:
    @hypothesis.seed(1)
    @hypothesis.given(last_steps())
    @hypothesis.settings(OPTIONS, max_examples=10)
    def check(program: Program) -> None:
        check_captured(program)

    check()


def test_what_is_drawn() -> None:
    found: set[tuple[str, ...]] = set()

    @hypothesis.given(last_steps())
    @hypothesis.settings(OPTIONS, max_examples=200, phases=(Phase.generate,))
    def draw(program: Program) -> None:
        assert program.statements[-1][0].startswith("w = own.")
        found.add(program.results)

    draw()
    for results in (("w",), ("x0", "w"), ("w", "x0"), ("w[..., :1]",), ("w", "own.reverse(x0)")):
        assert results in found


def test_a_lost_function_is_found() -> None:
    program = Program((Argument(Tree("dense"), (3,), grad="leaf"),), (("w = own.reverse(x0)", False),), ("w",))
    check_program(program)
    wrong = Program(program.arguments, (("w = x0.view_as(x0)", False),), ("w",))
    with pytest.raises(AssertionError, match="gradient 0"):
        check_call(program, 1, wrong.function)
