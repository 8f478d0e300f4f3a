"""Numbers that change from call to call."""

from __future__ import annotations

import types
from typing import Any

import torch

from subclass_aot import aot_compile
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Scope, facts_of, global_state
from subclass_aot.engine.guards import ChangingNumbers
from subclass_aot.engine.guards.changing_numbers import numbers_in
from subclass_aot.engine.specializations import Specialization


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
    numbers = ChangingNumbers()
    numbers.learn(arguments, made.signature, now, now)
    assert numbers.paths == set()
    numbers.learn(arguments, made.signature, made.facts, now)
    assert numbers.paths == {"state['steps']"}
    assert numbers.reasons == {"state['steps']": "state['steps']: 1 before, 2 now"}


def test_numbers_among_the_arguments() -> None:
    """They have the paths of arguments. Those that were kept stay numbers."""

    def scaled(x: torch.Tensor, by: float, *, table: dict[str, int]) -> torch.Tensor:
        return x * by * len(table)

    compiled = aot_compile(scaled)
    compiled(torch.ones(1), 0.5, table={"a": 2, "b": 3})
    made = latest(compiled)
    arguments = Arguments.of(scaled, (torch.ones(1), 0.25), {"table": {"a": 2, "b": 4}})
    now = facts_of(arguments, global_state(), Scope.of(made.signature))
    numbers = ChangingNumbers()
    numbers.learn(arguments, made.signature, made.facts, now)
    assert numbers.paths == {"args[1]", "kwargs['table']['b']"}
    assert numbers.keep(["args[1]", "args[2]"])
    assert not numbers.keep(["args[1]"])
    numbers.learn(arguments, made.signature, made.facts, now)
    assert numbers.paths == {"kwargs['table']['b']"}
    assert list(numbers.reasons) == ["kwargs['table']['b']"]


def test_a_number_that_is_another_class_is_not_the_same_number_changed() -> None:
    compiled = aot_compile(lambda x, n: x * n)
    compiled(torch.ones(1), 2)
    made = latest(compiled)
    for other in (2.0, 3.0, True):
        arguments = Arguments.of(compiled.fn, (torch.ones(1), other), {})
        numbers = ChangingNumbers()
        numbers.learn(arguments, made.signature, made.facts, facts_of(arguments, global_state()))
        assert numbers.paths == set()


def test_numbers_with_their_paths() -> None:
    """A bool is no number here: it does not count."""
    x = {"steps": 3, "flag": True, "rate": 0.5, "inner": types.SimpleNamespace(count=4), "pair": (1, (2.5, "a"))}
    found = numbers_in(facts_of(Arguments.of(lambda: x, (), {}), global_state()))
    assert found == {
        "x['steps']": 3, "x['rate']": 0.5, "x['inner'].count": 4, "x['pair'][0]": 1, "x['pair'][1][0]": 2.5,
    }  # fmt: skip


def test_what_differs_is_named_by_paths() -> None:
    compiled = aot_compile(lambda x, name, n: x * n if name else x)
    for name, n in (("a", 2), ("b", 2), ("c", 3)):
        compiled(torch.ones(1), name, n)
    assert compiled.recompiles == [
        "args[1]: str 'a' before, str 'b' now",
        "args[2]: 2 before, 3 now; args[1]: str 'b' before, str 'c' now",
    ]
