"""Random programs that raise at a random line: what they did before is as in eager mode."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tests.fuzz.raising import DOES, RAISES, WHEN, check_raising, raises
from tests.fuzz.state import Call, DrawnState


@settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(raises())
def test_state_after_an_error_is_eagers(drawn: DrawnState) -> None:
    check_raising(drawn)


@pytest.mark.parametrize("line", RAISES)
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("blocks", [False, True])
def test_each_line_is_a_program(line: str, when: str, blocks: bool) -> None:
    """None of them is refused."""
    lines = "self.n += 1", "self.b.add_(y.detach().sum())", when.format(line), "self.n += 1"
    assert check_raising(DrawnState(lines, (Call(), Call(rows=3), Call(("self.n += 1",), rows=4)), blocks=blocks))


@pytest.mark.parametrize("line", DOES)
def test_each_line_that_does_something_is_a_program(line: str) -> None:
    calls = [Call(rows=rows, requires_grad=rows > 3, backward=0) for rows in (2, 3, 4, 5)]
    assert check_raising(DrawnState((line, "self.n += 1", "if self.n % 3: raise ValueError"), tuple(calls)))


@pytest.mark.every_case
@pytest.mark.parametrize("line", RAISES[:4])
def test_behind_torch_compile(line: str) -> None:
    torch._dynamo.reset()
    drawn = DrawnState(("self.n += 1", "self.b.add_(1)", line), (Call(), Call()))
    assert check_raising(drawn, functools.partial(torch.compile, backend="subclass_aot"))


@pytest.mark.every_case
def test_the_oracle_finds_what_is_undone() -> None:
    drawn = DrawnState(("self.n += 1", "raise ValueError"), (Call(),))

    def undone(net):
        def call(x):
            net.n -= 1
            return net(x)

        return call

    with pytest.raises(AssertionError, match=r"net\.n"):
        check_raising(drawn, undone)
