"""A trace that begins again is made with the options that were asked for, and keeps all others."""

from __future__ import annotations

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.engine.graph import Retrace, TraceOptions


def test_what_was_asked_for_is_changed_and_nothing_else() -> None:
    before = TraceOptions(looks_at_branches=True, hashes_by_value=True)
    after = Retrace(with_grad=True, hashes_by_value=False).options(before)
    assert after == TraceOptions(looks_at_branches=True, with_grad=True)
    assert before == TraceOptions(looks_at_branches=True, hashes_by_value=True)


def test_views_are_more_than_before() -> None:
    options = Retrace(views=frozenset({"args[1]"})).options(TraceOptions(views=frozenset({"args[0]"})))
    assert options == TraceOptions(views=frozenset({"args[0]", "args[1]"}))
    assert Retrace(with_grad=True).options(options).views == options.views


def test_an_option_that_there_is_not() -> None:
    with pytest.raises(TypeError, match="with_gard"):
        Retrace(with_gard=True).options(TraceOptions())


def test_the_program_does_not_catch_it() -> None:
    """The branches cannot both be computed, so the trace begins again, and the call decides."""

    def program(x: torch.Tensor) -> torch.Tensor | None:
        y = x * 2
        try:
            chosen: torch.Tensor = torch.cond(x.sum() > 0, lambda: y[1:].zero_() + 1, lambda: y[:1].clone())
        except Exception:
            return None
        return chosen

    compiled = aot_compile(program)
    got = [compiled(torch.full((3,), sign)) for sign in (1.0, -1.0)]
    assert [None if y is None else y.tolist() for y in got] == [[1, 1], [-2]]
