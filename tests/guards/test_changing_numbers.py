"""Numbers that a function changes itself."""

from __future__ import annotations

import types
from typing import Any

import torch

from subclass_aot import aot_compile
from subclass_aot.call import Arguments
from subclass_aot.facts import Scope, facts_of, global_state
from subclass_aot.guards import changing_numbers
from subclass_aot.guards.changing_numbers import numbers_in
from subclass_aot.specializations import Specialization


def latest(compiled: Any) -> Specialization:
    found = compiled._specializations.latest
    assert isinstance(found, Specialization)
    return found


def test_numbers_that_a_function_changes() -> None:
    state = {"steps": 1, "other": 5}

    def step(x: torch.Tensor) -> torch.Tensor:
        state["steps"] += 1
        return x * state["steps"]

    compiled = aot_compile(step)
    compiled(torch.ones(1))
    made = latest(compiled)
    arguments = Arguments.of(step, (torch.ones(1),), {})
    now = facts_of(arguments, global_state(), Scope.of(made.signature))
    assert changing_numbers(arguments, made.signature, made.facts, now) == {"state['steps']"}
    assert changing_numbers(arguments, made.signature, now, now) == set()


def test_integers_with_their_paths() -> None:
    """A bool is no integer here: it does not count."""
    x = {"steps": 3, "flag": True, "rate": 0.5, "inner": types.SimpleNamespace(count=4), "pair": (1, 2)}
    found = numbers_in(facts_of(Arguments.of(lambda: x, (), {}), global_state()))
    assert found == {"x['steps']": 3, "x['inner'].count": 4}
