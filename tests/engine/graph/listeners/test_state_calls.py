"""Calls that read and set states of generators: a trace answers them in its thread, and while it runs."""

from __future__ import annotations

import random
import threading
from typing import Any

import torch

from subclass_aot import MetaTensor
from subclass_aot.base import _torch
from tests.engine.graph.recording import recorded


def test_what_a_program_keeps_of_functions_is_torchs_when_the_trace_is_over() -> None:
    names = ["seed", "get_rng_state", "set_rng_state", "Generator"]
    before, state = [getattr(torch, name) for name in names], torch.get_rng_state()
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept(forward):
        held: list[Any] = [getattr(torch, name) for name in names]
    assert [getattr(torch, name) for name in names] == before and held[:3] != before[:3]
    seed, get, put, make = held
    assert seed() == torch.initial_seed() and not get().equal(state)
    put(state)
    assert torch.get_rng_state().equal(state) and type(make()) is before[3]


def test_another_thread_has_the_functions_of_torch() -> None:
    """What it sets is another matter: there is one generator for all threads."""
    forward, _ = recorded(torch.sin)
    found: list[Any] = []
    with forward.listeners.random_numbers.kept(forward), forward:
        torch.manual_seed(3)
        torch.rand(2)
        thread = threading.Thread(target=lambda: found.extend([torch.get_rng_state(), torch.Generator()]))
        thread.start()
        thread.join()
        assert type(torch.get_rng_state()) is MetaTensor and type(found[0]) is torch.Tensor
    assert not forward.listeners.own_generators._made


def test_states_of_a_generator_are_traced_while_the_function_runs() -> None:
    forward, _ = recorded(torch.sin)
    generator, numbers = torch.Generator().manual_seed(4), forward.listeners.random_numbers
    kinds = []
    with numbers.kept(forward), forward:
        for in_forward in (False, True, False):
            numbers.in_forward = in_forward
            kinds.append(type(_torch.generator.generator_state(generator)))
    assert kinds == [torch.Tensor, MetaTensor, torch.Tensor] and not numbers.in_forward


def test_lines_that_draw_what_no_graph_can_draw() -> None:
    forward, _ = recorded(torch.sin)
    state, numbers = random.getstate(), forward.listeners.random_numbers
    with numbers.kept(forward), forward:
        random.random()  # the line
        assert random.getstate() != state
    assert "# the line" in numbers.line_elsewhere and random.getstate() == state
