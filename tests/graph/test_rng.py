"""Draws that repeat others are copies of them, and a trace leaves the generator as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor
from subclass_aot.errors import TraceError
from tests.graph.recording import finished, gone_backward, raw, recorded


def test_a_draw_in_backward_from_the_same_state_is_a_copy() -> None:
    state = torch.get_rng_state()
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept():
        with forward:
            torch.rand(3)
            noise = torch.rand(3).mul_(2)
        torch.set_rng_state(state)
        fork, (again, other) = gone_backward(forward, lambda _: (torch.rand(3), torch.rand(3)))
    assert raw(fork) == ["sin", "rand", "clone_default", "rand_1", "clone_default_1", "mul_"]
    first, second = (fork.node_of(leaf) for leaf in (again, other))
    assert [n.name for n in (*first.all_input_nodes, *second.all_input_nodes)] == ["rand", "rand_1"]
    assert forward.node_of(noise).name == "rand_1" and raw(forward) == ["sin", "rand", "rand_1", "mul_"]


def test_a_draw_into_a_tensor_is_repeated_by_a_write() -> None:
    state = torch.get_rng_state()
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept():
        with forward:
            torch.zeros(3).uniform_()
        torch.set_rng_state(state)
        fork, _ = gone_backward(forward, lambda tangent: tangent.uniform_())
    assert raw(fork) == ["sin", "zeros", "uniform_", "clone_default", "copy_"]


def test_another_draw_from_the_same_state_is_refused() -> None:
    state = torch.get_rng_state()
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept():
        with forward:
            torch.rand(3)
        torch.set_rng_state(state)
        with pytest.raises(TraceError, match="sets the seed, or the state, of the generator"):
            gone_backward(forward, lambda _: torch.randn(3))


def test_the_generator_is_as_it_was() -> None:
    state = torch.get_rng_state()
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept():
        with forward:
            torch.rand(3)
        assert not torch.get_rng_state().equal(state)
    assert torch.get_rng_state().equal(state)
    with forward:  # as in a graph that is recorded again
        torch.rand(3)
        torch.rand(3, generator=torch.Generator())
    assert torch.get_rng_state().equal(state) and raw(forward) == ["sin", "rand", "rand_1", "rand_2"]


def test_seeds_are_refused_and_generators_by_name() -> None:
    forward, _ = recorded(torch.sin)
    forward.listeners.random_numbers.refuse_seeds()
    with forward.listeners.random_numbers.kept(), forward:
        with pytest.raises(TraceError, match=r"(?s)gives a generator to an operator.*aten.rand.generator"):
            torch.rand(3, generator=torch.Generator())
    torch.manual_seed(torch.initial_seed() + 1)
    with pytest.raises(TraceError, match="somewhere in the function"):
        forward.listeners.random_numbers.refuse_seeds()


def test_a_draw_of_another_backward_is_not_repeated() -> None:
    def draws_twice(tangent: MetaTensor) -> Any:
        torch.manual_seed(0)
        torch.rand_like(tangent)
        torch.manual_seed(0)
        return torch.rand_like(tangent)

    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept():
        first, second = gone_backward(forward, draws_twice), gone_backward(forward, draws_twice)
    assert finished(*first)[2:] == [("rand_like", ["tangents_1"]), ("clone_default", ["rand_like"])]
    assert finished(*second)[2:] == [("rand_like_1", ["tangents_1"]), ("clone_default_1", ["rand_like_1"])]
