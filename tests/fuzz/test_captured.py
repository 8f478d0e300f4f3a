"""Random programs behind `torch.compile(backend="subclass_aot")`: a few always, hundreds where there is time."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, Phase

from tests.fuzz import Program, check_captured, programs
from tests.fuzz.captured import excused
from tests.fuzz.programs import Argument
from tests.fuzz.trees import Tree

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


@pytest.mark.parametrize(
    "seed, count",
    [(1, 25), *(pytest.param(seed, 200, marks=pytest.mark.long) for seed in (2, 3, 4))],
)
def test_random_programs(seed: int, count: int) -> None:
    counted: list[bool] = []

    @hypothesis.seed(seed)
    @hypothesis.given(programs(everything=count > 25))
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    def check(program: Program) -> None:
        counted.append(check_captured(program))

    check()
    assert sum(counted) > 0.9 * count


def test_a_wrong_backend_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(gm: Any, inputs: Any) -> Any:
        return lambda *args: [x + 1 if isinstance(x, torch.Tensor) else x for x in gm(*args)]

    torch._dynamo.register_backend(wrong, name="wrong_for_a_test")
    argument = Argument(Tree("TwoTensor", (Tree("dense"), Tree("dense"))), (3,))
    program = Program((argument,), (("v1 = x0 * 2", False),), ("v1",))
    assert check_captured(program)
    with pytest.raises(AssertionError, match="values"):
        check_captured(program, backend="wrong_for_a_test")


def test_what_dynamo_captures_wrong_counts_for_nothing() -> None:
    """The attribute is set after the graph has run, which reads the one before."""
    argument = Argument(Tree("TwoTensor", (Tree("dense"), Tree("dense"))), (3,))
    program = Program((argument,), (("x0.a = x0.a * 2", False), ("v1 = x0 + 1", False)), ("v1",))
    assert not check_captured(program)


def test_what_dynamo_captures_wrong_is_excused() -> None:
    def check(wrong: str, compile: Any) -> None:
        compiled = compile(lambda x: x + 1)
        backend = getattr(compile, "keywords", {}).get("backend", "subclass_aot")
        assert compiled(torch.ones(2)).sum() == 4 and backend not in wrong

    excused(check, "none")
    excused(check, "eager and subclass_aot")
    with pytest.raises(AssertionError):
        excused(check, "subclass_aot alone")
