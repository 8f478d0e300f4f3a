"""Operators that depend on data: numbers that stand for what they give, and values of the call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor
from subclass_aot.engine.graph import Looks, Recorder, generators
from subclass_aot.errors import DataDependentError
from subclass_aot.meta.symbols import Symbols, is_symbolic, unbacked_sizes
from tests.engine.graph.recording import gone_backward, raw, recorded


def looking(program: Any, value: torch.Tensor) -> tuple[Recorder, Any, Looks]:
    """The recorder of a program in a call with such a value, what it returned, and what it looked at."""
    looks = Looks()
    recorder = Recorder(looks=looks)

    def started(x: MetaTensor) -> Any:
        looks.start({x.meta_tag: value}, generators())
        return program(x)

    return *recorded(started, recorder=recorder), looks


def test_the_call_answers_and_what_was_asked_is_kept() -> None:
    def program(x: Any) -> str:
        return "large" if x.sum() > 3 else "small"  # the line

    for value, expected in (torch.ones(3), "small"), (torch.ones(3) * 2, "large"):
        recorder, answer, looks = looking(program, value)
        assert answer == expected and raw(recorder) == ["sum_1", "gt", "clone"]
        (look,) = looks.found
        assert look.leaf.meta_tag.name == "clone" and look.value is (expected == "large") and "# the line" in look.line


def test_what_is_written_counts_as_it_is_now() -> None:
    value = torch.ones(3)
    _, answer, _ = looking(lambda x: (x.mul_(5), bool(x.sum() > 3))[1], value)
    assert answer and torch.equal(value, torch.ones(3))


def test_backward_may_not_ask() -> None:
    forward, _, looks = looking(torch.sin, torch.ones(3))
    with pytest.raises(DataDependentError, match="asks for values"):
        gone_backward(forward, lambda tangent: tangent.sum().item())
    assert not looks.found


def test_a_number_that_depends_on_data_is_a_node_that_knows_it() -> None:
    symbols = Symbols()
    with unbacked_sizes(symbols):
        recorder, chosen = recorded(lambda x: x.nonzero())
        assert is_symbolic(chosen.shape[0])
        node = recorder.node_of(chosen.shape[0])
    assert raw(recorder) == ["nonzero", "sym_size_int"] and node.args == (chosen.meta_tag, 0)
    assert [str(n) for n in chosen.meta_tag.meta["unbacked"]] == [str(n) for n in recorder.symints.unbacked()] != []


def test_a_look_after_a_backward_that_repeats_a_draw() -> None:
    """The copy of a draw stands in forward, and is no part of what the call runs."""
    looks = Looks()
    recorder, value = Recorder(looks=looks), torch.ones(3)

    def asks(x: MetaTensor) -> Any:
        looks.start({x.meta_tag: value}, generators())
        return x, bool((x + torch.rand(3)).sum() > 0)

    with recorder.listeners.random_numbers.kept(recorder):
        state = torch.get_rng_state()
        _, (x, answer) = recorded(asks, recorder=recorder)
        torch.set_rng_state(state)
        fork, _ = gone_backward(recorder, lambda _: torch.rand(3))
        assert "clone_default" in raw(fork)
        with recorder:
            other = bool(x.sum() == 3)
    assert answer and other
