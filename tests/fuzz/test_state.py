"""Random programs over state: the oracle finds differences, and what is drawn has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from subclass_aot.errors import TraceError
from tests.fuzz.state import KEPT, OF_CLASSES, READS, WRITES, Call, DrawnState, check_state, states


@settings(max_examples=30, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(states())
def test_state_is_as_in_eager_mode(drawn: DrawnState) -> None:
    check_state(drawn)


@pytest.mark.parametrize("line", [*READS, *WRITES, *KEPT])
@pytest.mark.parametrize("blocks", [False, True])
def test_each_line_is_a_program(line: str, blocks: bool) -> None:
    """None of them is passed over as no program, or refused."""
    between = Call(before=("self.table['k'] = 3", "self.extra = 1", "self.kept.note = 2"))
    assert check_state(DrawnState((line,), (Call(), between, between), blocks=blocks))


@pytest.mark.every_case
@pytest.mark.parametrize("line", OF_CLASSES)
def test_each_line_between_calls(line: str) -> None:
    lines = ("y = y * Config.level + getattr(Config, 'extra', 1)", "y = y * COUNT + len(Config.names) + other.LEVEL")
    lines += ("y = y * (2 if FLAGS['on'] and self.training else 1)",)
    assert check_state(DrawnState(lines, (Call(), Call((line,)), Call((line,)))))


FORGETFUL = {
    "a call that does nothing": lambda net: lambda x: x * 1,
    "what the first call saw": lambda net: lambda x, n=net.n: x * net.p * n,
}


@pytest.mark.every_case
@pytest.mark.parametrize("forgets", FORGETFUL.values(), ids=FORGETFUL)
def test_the_oracle_finds_what_is_forgotten(forgets: Callable[[Any], Callable[..., Any]]) -> None:
    drawn = DrawnState(("y = y * self.n", "self.n += 1"), (Call(), Call()))
    with pytest.raises(AssertionError, match="call 0: "):
        check_state(drawn, forgets)


def test_a_refusal_leaves_state_as_it_was() -> None:
    def refusing(net: Any) -> Callable[..., Any]:
        def call(x: Any) -> Any:
            net.n += spoils
            raise TraceError("refused")

        return call

    drawn = DrawnState(("y = y * 2",), (Call(),))
    spoils = 0
    assert not check_state(drawn, refusing)
    spoils = 1
    with pytest.raises(AssertionError, match="call 0, refused: net.n: 1, and compiled 2"):
        check_state(drawn, refusing)
