"""The states of generators of random numbers: as they are, as they were, and within a trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.engine.graph import drawing_from, generators
from tests.engine.graph.recording import raw, recorded


def test_from_one_state_the_same_numbers_are_drawn() -> None:
    states = generators()
    first = torch.rand(3)
    second = torch.rand(3)
    states.put_back()
    assert torch.equal(torch.rand(3), first) and torch.equal(torch.rand(3), second)


@pytest.mark.parametrize("fails", [False, True])
def test_after_the_block_the_generators_are_as_they_were(fails: bool) -> None:
    states = generators()
    first, second = torch.rand(3), torch.rand(3)
    states.put_back()
    torch.rand(3)
    try:
        with drawing_from(states):
            again, _, _ = (torch.rand(3) for _ in range(3))
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert torch.equal(again, first) and torch.equal(torch.rand(3), second)


def test_in_a_trace_the_states_have_values_and_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [torch.ones(2)])
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    recorder, (state, others, _) = recorded(lambda x: generators())
    assert torch.equal(state, torch.get_rng_state()) and others[0].tolist() == [1, 1] and raw(recorder) == []


def test_accelerators_count_where_they_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    there, put_back = [torch.ones(2), torch.zeros(2)], []
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: there)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", put_back.append)
    found: list[Any] = []
    for in_use in (False, True):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda in_use=in_use: in_use)
        found.append(generators()[1])
        generators().put_back()
    assert found == [[], there] and put_back == [there]
