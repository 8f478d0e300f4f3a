"""What a compiled function learns of values that differ from call to call."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from subclass_aot import trace_joint
from subclass_aot.errors import DataDependentError, RuntimeAssertError
from subclass_aot.graph.looks import Look
from subclass_aot.runtime import OtherValue, ValueHistory
from subclass_aot.signature import Assumptions, JointSignature
from subclass_aot.symbols import RuntimeAssert

SIGNATURE = trace_joint(torch.sin, torch.ones(1)).signature


@dataclass(eq=False)
class Compiled:
    signature: JointSignature


def specialization(*looks: tuple[str, Any]) -> Compiled:
    """One that was traced for these values, each with its line."""
    found = tuple(Look(None, value, line) for line, value in looks)
    return Compiled(dataclasses.replace(SIGNATURE, assumptions=Assumptions(looks=found)))


def history(dynamic: bool | None = None, allowed: bool = True, limit: int = 8) -> ValueHistory:
    return ValueHistory(dynamic, allowed, limit)


def test_a_number_that_differs_is_a_symbol_from_then_on() -> None:
    known = history()
    known.learn({specialization(("a", True), ("b", 3)): OtherValue(1, 4)}, 1)
    assert known.varying == {"b"}
    known.learn({specialization(("a", True)): OtherValue(0, False)}, 1)
    known.learn({specialization(("c", [1, 2.5])): OtherValue(0, [1, 3.5])}, 1)
    assert known.varying == {"b", "c"}, "what is true or false never is"


def test_sizes_that_stay_numbers_are_no_symbols() -> None:
    known = history(dynamic=False)
    known.learn({specialization(("a", 3)): OtherValue(0, 4)}, 1)
    assert not known.varying


def test_a_specialization_that_expects_what_was_found_may_fit() -> None:
    tried = {specialization(("a", True), ("b", 3)): OtherValue(1, 4)}
    known = history()
    assert known.may_fit(specialization(("a", True), ("b", 4)).signature, tried)
    assert not known.may_fit(specialization(("a", True), ("b", 5)).signature, tried)
    assert not known.may_fit(specialization(("a", False), ("b", 4)).signature, tried), "so far the values agreed"
    assert known.may_fit(specialization(("a", True), ("other line", 5)).signature, tried), "nothing is known of that"
    assert not known.may_fit(specialization(("a", 1), ("b", 4)).signature, tried), "1 is not True"


def test_more_values_than_allowed_are_refused_with_those_seen() -> None:
    tried = {specialization(("x.py:3", value)): OtherValue(0, 5) for value in (1, 2)}
    history(limit=3).learn(tried, 2)
    with pytest.raises(DataDependentError, match="2 are compiled for already") as error:
        history(limit=2).learn(tried, 2)
    assert "x.py:3" in str(error.value) and "Its values: 1, 2, 5" in str(error.value)


def test_a_value_that_comes_out_otherwise_each_time_is_refused() -> None:
    tried = {specialization(("x.py:3", 1)): OtherValue(0, 5), specialization(("x.py:3", 1)): OtherValue(0, 5)}
    with pytest.raises(DataDependentError, match="comes out otherwise each time") as error:
        history().learn(tried, 1)
    assert "It was 1 when the call was traced, and 5 when" in str(error.value)


def test_reasons_name_the_line_and_both_values() -> None:
    other = OtherValue(0, False)
    assert ValueHistory.reason(specialization(("x.py:3", True)).signature, other) == (
        "a value: True before, False now (x.py:3)"
    )


def unmet(by: Any) -> tuple[RuntimeAssert, list[int]]:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    number = ShapeEnv().create_unbacked_symint()
    symbol = number.node.expr
    return RuntimeAssert(symbol > 3, {symbol: number}, "x.py:3", by), [2]


def test_what_the_program_says_and_is_not_so_is_an_error() -> None:
    with pytest.raises(RuntimeAssertError, match="in this call n0 = 2") as error:
        history().learn({specialization(): OtherValue(None, unmet("stated"))}, 1)
    assert "x.py:3" in str(error.value)


def test_what_the_trace_assumed_may_be_otherwise() -> None:
    known = history()
    known.learn({specialization(): OtherValue(None, unmet("assumed"))}, 1)
    assert "before, not so now, where n0 = 2 (x.py:3)" in ValueHistory.reason(
        specialization().signature, OtherValue(None, unmet("assumed"))
    )


def test_what_an_operator_needs_is_asked_of_the_next_trace_and_then_an_error() -> None:
    known = history()
    tried = {specialization(): OtherValue(None, unmet("needed"))}
    known.learn(tried, 1)
    tried[specialization()] = OtherValue(None, unmet("needed"))
    with pytest.raises(RuntimeAssertError):
        known.learn(tried, 1)


def test_a_function_that_may_not_look_gets_no_answers() -> None:
    assert history(allowed=False).looks() is None and history().looks() is not None
    with pytest.raises(RuntimeAssertError):
        history(allowed=False).learn({specialization(): OtherValue(None, unmet("needed"))}, 1)
