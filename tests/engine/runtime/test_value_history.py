"""What a compiled function learns of values that differ from call to call."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile, trace_joint
from subclass_aot.engine.graph.looks import Look
from subclass_aot.engine.runtime import OtherValue, ValueHistory
from subclass_aot.engine.signature import Assumptions, JointSignature
from subclass_aot.errors import RuntimeAssertError
from subclass_aot.meta.symbols import RuntimeAssert

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
    known.learn({specialization(("a", True), ("b", 3)): OtherValue(1, 4)})
    assert known.varying == {"b"}
    known.learn({specialization(("a", True)): OtherValue(0, False)})
    known.learn({specialization(("c", [1, 2.5])): OtherValue(0, [1, 3.5])})
    assert known.varying == {"b", "c"}, "what is true or false never is"


def test_sizes_that_stay_numbers_are_no_symbols() -> None:
    known = history(dynamic=False)
    known.learn({specialization(("a", 3)): OtherValue(0, 4)})
    assert not known.varying


def test_a_specialization_that_expects_what_was_found_may_fit() -> None:
    tried = {specialization(("a", True), ("b", 3)): OtherValue(1, 4)}
    known = history()
    assert known.may_fit(specialization(("a", True), ("b", 4)).signature, tried)
    assert not known.may_fit(specialization(("a", True), ("b", 5)).signature, tried)
    assert not known.may_fit(specialization(("a", False), ("b", 4)).signature, tried), "so far the values agreed"
    assert known.may_fit(specialization(("a", True), ("other line", 5)).signature, tried), "nothing is known of that"
    assert not known.may_fit(specialization(("a", 1), ("b", 4)).signature, tried), "1 is not True"


def test_of_more_values_than_allowed_it_says_which_were_seen() -> None:
    tried = {specialization(("x.py:3", value)): OtherValue(0, 5) for value in (1, 2)}
    assert history(limit=3).why_not_compiled(tried, 2) == ""
    told = history(limit=2).why_not_compiled(tried, 2)
    assert "2 are compiled for" in told and "x.py:3" in told and "Its values: 1, 2, 5" in told


def test_for_a_value_that_comes_out_otherwise_each_time_nothing_more_is_compiled() -> None:
    tried = {specialization(("x.py:3", 1)): OtherValue(0, 5), specialization(("x.py:3", 1)): OtherValue(0, 5)}
    known = history()
    known.learn(tried)  # two of other calls: one of its sizes, and one that knows them as symbols
    assert known.why_not_compiled(tried, 2) == ""
    known.learn(tried, made=[[*tried][-1]])
    told = known.why_not_compiled(tried, 2)
    assert "comes out otherwise each time" in told
    assert "It was 1 when the call was traced, and 5 when" in told
    assert known.why_not_compiled({specialization(("x.py:3", 7)): OtherValue(0, 5)}, 1) == told, "of later calls, too"
    assert known.why_not_compiled({specialization(("x.py:4", 7)): OtherValue(0, 5)}, 1) == "", "another line"


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
        history().learn({specialization(): OtherValue(None, unmet("stated"))})
    assert "x.py:3" in str(error.value)


def test_what_the_trace_assumed_may_be_otherwise() -> None:
    known = history()
    known.learn({specialization(): OtherValue(None, unmet("assumed"))})
    assert "before, not so now, where n0 = 2 (x.py:3)" in ValueHistory.reason(
        specialization().signature, OtherValue(None, unmet("assumed"))
    )


def test_what_an_operator_needs_is_asked_of_the_next_trace_and_then_an_error() -> None:
    known = history()
    tried = {specialization(): OtherValue(None, unmet("needed"))}
    known.learn(tried)
    tried[specialization()] = OtherValue(None, unmet("needed"))
    known.learn(tried)  # two of other calls
    with pytest.raises(RuntimeAssertError):
        known.learn(tried, made=[[*tried][-1]])


def test_a_function_that_may_not_look_gets_no_answers() -> None:
    assert history(allowed=False).looks() is None and history().looks() is not None
    with pytest.raises(RuntimeAssertError):
        history(allowed=False).learn({specialization(): OtherValue(None, unmet("needed"))})


def _experts(k: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for expert in range(2):
        rows, _ = torch.where(k == expert)
        out.index_add_(0, rows, x[rows] * (expert + 2))
    return out


READS: dict[str, Any] = {
    "experts": _experts,
    "a mask": lambda k, x: x[k[:, 0] == 0] * 2,
    "positions": lambda k, x: x[(k[:, 0] == 0).nonzero()[:, 0]].sum(0),
    "a number": lambda k, x: x * int((k == 0).sum()),
    "a branch": lambda k, x: x * 2 if (k == 0).sum() > 1 else x * 3,
    "a list": lambda k, x: x * len([n for n in k.flatten().tolist() if n == 0]),
    "an item": lambda k, x: x[: (k[:, 0] == 0).sum().item()] * 2,
    "different ones": lambda k, x: (torch.unique(k) + 1, x * 2)[0],
    "repeated": lambda k, x: torch.repeat_interleave(x, (k[:, 0] == 0).long(), 0),
}


@pytest.mark.every_case
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_other_values_at_a_size_that_was_compiled_alone_first(read: Any) -> None:
    """The third call fits what was compiled for its sizes, and what knows them as symbols, but for its values."""

    def arguments(rows: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        k = torch.full((rows, 2), 9)
        k[:count, 0], k[-2:, 1] = 0, 1
        return k, torch.arange(rows * 3.0).view(rows, 3)

    compiled = aot_compile(read)
    for rows, count in ((5, 1), (6, 1), (5, 0), (5, 3), (7, 1), (6, 0), (5, 1)):
        torch.testing.assert_close(compiled(*arguments(rows, count)), read(*arguments(rows, count)))
