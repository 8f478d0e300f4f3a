"""A choice that depends on the data: both branches are recorded, or the call decides, or it is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from subclass_aot import Spec, TwoTensor, aot_compile
from subclass_aot.engine.graph import Looks, Recorder, generators
from subclass_aot.engine.graph.replaced.branches import choose, decided
from subclass_aot.errors import MutationError, TraceError
from tests.engine.graph.recording import raw, recorded

NUMBER = Spec.of(torch.tensor(1.0))


def test_what_is_decided_and_what_depends_on_data() -> None:
    looks, value = Looks(), torch.tensor(3.0)
    recorder = Recorder(looks=looks)

    def program(x: Any) -> list[bool | None]:
        looks.start({x.meta_tag: value}, generators())
        predicates = [True, 0, torch.tensor(2) > 1, x > 1, x > 5]
        return [decided(recorder, pred, by_looking) for pred in predicates for by_looking in (False, True)]

    found = recorded(program, NUMBER, recorder=recorder)[1]
    assert found == [True, True, False, False, True, True, None, True, None, False]


def test_one_branch_is_recorded_of_what_is_decided_and_both_of_what_is_not() -> None:
    def nodes(pred: Any) -> list[str]:
        recorder = Recorder()
        recorded(lambda x: choose(recorder, pred(x), x.sin, x.cos), NUMBER, recorder=recorder)
        return [name for name in raw(recorder) if name in ("sin", "cos", "where")]

    assert [nodes(lambda x: True), nodes(lambda x: False)] == [["sin"], ["cos"]]
    assert nodes(lambda x: x > 0) == ["sin", "cos", "where"]


def written(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.add_(1), lambda x: x * 2, (x,))


def part_written(x: torch.Tensor) -> Any:
    y = x * 2
    return torch.cond(x.sum() > 0, lambda: y[1:].zero_().sum(), lambda: y.sum())


def turned(x: torch.Tensor) -> Any:
    y = x.view(1, -1)
    return torch.cond(x.sum() > 0, lambda: y.t_().sum(), lambda: y.sum())


def split_written(x: torch.Tensor) -> Any:
    y = x.clone()
    return torch.cond(x.sum() > 0, lambda: y.split(1)[0].mul_(2).sum(), lambda: y.sum())


@pytest.mark.parametrize("program", [written, part_written, turned, split_written])
def test_branches_that_write(program: Any) -> None:
    with pytest.raises(MutationError, match="A branch of torch.cond writes into a tensor") as caught:
        aot_compile(program, values="refuse")(torch.ones(3))
    assert "torch.cond(x.sum() > 0" in str(caught.value)


def test_a_branch_that_turns_a_wrapper() -> None:
    two = TwoTensor(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(MutationError, match="A branch of torch.cond writes into a tensor"):
        aot_compile(lambda x: torch.cond(x.a.sum() > 0, lambda: x.t_().sum(), lambda: x.sum()), values="refuse")(two)


def test_branches_that_draw() -> None:
    with pytest.raises(TraceError, match="A branch of torch.cond draws random numbers"):
        aot_compile(lambda x: torch.cond(x.sum() > 0, F.dropout, lambda x: x * 2, (x,)), values="refuse")(torch.ones(3))


def test_branches_that_cannot_both_be_computed_are_chosen_by_value() -> None:
    """Which one is right for a call, the call says; none of it happens in the other."""

    def with_cond(x: torch.Tensor) -> torch.Tensor:
        y = x * 2

        def first() -> torch.Tensor:
            y[1:].zero_()
            return y.sum() + torch.rand(())

        chosen: torch.Tensor = torch.cond(x.sum() > 0, first, lambda: y[:1].clone())
        return chosen

    def with_if(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if x.sum() > 0:
            y[1:].zero_()
            return y.sum() + torch.rand(())
        return y[:1].clone()

    compiled = aot_compile(with_cond)
    for sign in (1.0, -1.0, 2.0, -3.0):
        outcomes = []
        for function in (compiled, with_if):
            torch.manual_seed(0)
            x = torch.full((3,), sign, requires_grad=True)
            y = function(x)
            outcomes.append((y, torch.autograd.grad(y.sum(), x)[0], torch.rand(())))
        assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))
    assert len(compiled.recompiles) == 1


@pytest.mark.parametrize(
    "other", [lambda x: x[:1], lambda x: x.double(), lambda x: (x, x), lambda x: 3, lambda x: None, lambda x: {"a": x}]
)
def test_branches_that_differ(other: Any) -> None:
    with pytest.raises(TraceError, match="The branches of torch.cond give different things"):
        aot_compile(lambda x: torch.cond(x.sum() > 0, lambda x: x * 2, other, (x,)), values="refuse")(torch.ones(3))
