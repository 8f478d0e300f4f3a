"""Draws that repeat others are copies of them, draws behind a seed are values, and the generator is left as it was."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from subclass_aot import MetaTensor, Spec
from subclass_aot.base._torch import generator as generator_of
from subclass_aot.base._torch.dispatch import PassOn
from subclass_aot.engine.graph.drawn import GENERATOR_STATE
from subclass_aot.errors import TraceError
from tests.engine.graph.recording import finished, gone_backward, raw, recorded


def test_a_draw_in_backward_from_the_same_state_is_a_copy() -> None:
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept(forward):
        state = torch.get_rng_state()
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
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept(forward):
        state = torch.get_rng_state()
        with forward:
            torch.zeros(3).uniform_()
        torch.set_rng_state(state)
        fork, _ = gone_backward(forward, lambda tangent: tangent.uniform_())
    assert raw(fork) == ["sin", "zeros", "uniform_", "clone_default", "copy_"]


def test_another_draw_from_the_same_state_draws_from_its_value() -> None:
    """Other operators, other bounds: what tensors it is given may be computed again in backward."""
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept(forward):
        state = torch.get_rng_state()
        with forward:
            torch.randint(0, 5, (3,))
            torch.set_rng_state(state)
            torch.randint(0, 5, (3,))
            torch.set_rng_state(state)
            torch.randint(0, 9, (3,))
            torch.set_rng_state(state)
            torch.randn(3)
    assert [n for n in raw(forward) if "getitem" not in n] == [
        "sin", "generator_state", "generator_state_1", "randint", "clone_default",
        "drawn__aten__randint__low", "drawn__aten__randn__default",
    ]  # fmt: skip


def test_a_draw_of_given_tensors_is_repeated_in_forward_for_the_same_tensors() -> None:
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept(forward):
        state = torch.get_rng_state()
        with forward:
            p, q = torch.ones(3), torch.ones(3)
            for each in (p, p, q):
                torch.set_rng_state(state)
                torch.bernoulli(each)
    assert "clone_default" in raw(forward) and "drawn__aten__bernoulli__default" in raw(forward)


def test_the_generator_is_as_it_was() -> None:
    state = torch.get_rng_state()
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept(forward):
        with forward:
            torch.rand(3)
        assert not torch.get_rng_state().equal(state) and torch.initial_seed() == 0
    assert torch.get_rng_state().equal(state)
    with forward:  # as in a graph that is recorded again
        torch.rand(3)
        torch.rand(3, generator=torch.Generator())
    assert torch.get_rng_state().equal(state) and raw(forward) == ["sin", "rand", "rand_1", "rand_2"]


def test_draws_behind_a_seed_are_a_chain_of_states() -> None:
    """The seed that is set already is seen, too, and what is drawn as it comes goes on where it was."""
    forward, _ = recorded(torch.sin)
    numbers = forward.listeners.random_numbers
    with numbers.kept(forward), forward:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            torch.rand(2)
            torch.zeros(3).uniform_()
        torch.rand(2)
        assert numbers.end_forward(forward) == (None, False)
    nodes = forward.in_order()
    names = [
        "sin",
        "_constant0",
        "drawn__aten__rand__default",
        "zeros",
        "drawn__aten__uniform___default",
        "copy_",
        "rand",
    ]
    assert [n.name for n in nodes if n.op != "placeholder" and "getitem" not in n.name] == names
    first, second = (n for n in nodes if n.name.startswith("drawn"))
    assert first.args[0].name == "_constant0" and second.args[0].args == (first, 1)
    assert forward.listeners.real_tensors.constants["_constant0"].equal(torch.Generator().manual_seed(0).get_state())


@pytest.mark.parametrize("then", ["seed", "nothing", "the start", "the middle"])
def test_what_is_left_at_the_end(then: str) -> None:
    forward, _ = recorded(torch.sin)
    numbers = forward.listeners.random_numbers
    with numbers.kept(forward), forward:
        start = torch.get_rng_state()
        torch.rand(2)
        middle = torch.get_rng_state()
        torch.rand(2)
        if then == "seed":
            torch.manual_seed(3)
            torch.rand(2)
        elif then != "nothing":
            torch.set_rng_state(start if then == "the start" else middle)
        left, keeps = numbers.end_forward(forward)
    assert keeps == (then == "the start") and (left is not None) == (then in ("seed", "the middle"))
    if left is not None:
        assert forward.node_of(left).name == {"seed": "getitem_1", "the middle": "generator_state"}[then]


def test_a_state_that_is_a_traced_tensor() -> None:
    """It is set as it is then, and given as a traced tensor again."""
    state = Spec.of(torch.get_rng_state())

    def program(x: MetaTensor, given: MetaTensor) -> Any:
        torch.set_rng_state(given)
        given.zero_()
        torch.rand(2)
        return torch.get_rng_state()

    recorder, _ = recorded(torch.sin)
    with recorder.listeners.random_numbers.kept(recorder):
        _, after = recorded(program, Spec.of(torch.ones(3)), state, recorder=recorder)
    assert isinstance(after, MetaTensor)
    names = [n for n in raw(recorder) if "getitem" not in n]
    assert names == ["sin", "detach", "clone", "zero_", "drawn__aten__rand__default", "clone_1"]


def test_the_default_generator_may_be_named() -> None:
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept(forward), forward:
        torch.rand(3, generator=torch.default_generator)
    (node,) = [n for n in forward.in_order() if n.name == "rand"]
    assert node.kwargs["generator"] is None


def _by_chance() -> None:
    torch.seed()


def _by_chance_by_another_name() -> None:
    torch.random.seed()


def _another() -> None:
    torch.default_generator.set_state(_of_nobody())
    torch.rand(3)


def _of_nobody() -> torch.Tensor:
    state = torch.Generator().manual_seed(5).get_state()
    with torch.utils._python_dispatch._disable_current_modes():
        state[1000] += 1
    return state


@pytest.mark.parametrize(
    ("sets", "what"),
    [
        (_by_chance, "takes a seed by chance"),
        (_by_chance_by_another_name, "takes a seed by chance"),
        (_another, "none that the function has had"),
    ],
)
def test_other_states_are_refused(sets: Any, what: str) -> None:
    seed = torch.random.seed
    forward, _ = recorded(torch.sin)
    refused = pytest.raises(TraceError, match=rf"(?s)sets the state of the generator.*{what}.*Instead:")
    with forward.listeners.random_numbers.kept(forward), forward, refused:
        sets()
    assert torch.seed is torch.random.seed is seed


def test_a_trace_in_a_trace_has_states_of_its_own() -> None:
    outer, _ = recorded(torch.sin)
    inner, _ = recorded(torch.sin)
    numbers = outer.listeners.random_numbers
    with numbers.kept(outer), outer:
        torch.rand(2)
        state = torch.get_rng_state()
        with inner.listeners.random_numbers.kept(inner), inner:
            begun = torch.get_rng_state()
            torch.manual_seed(3)
            torch.rand(2)
            assert type(torch.get_rng_state()) is MetaTensor
        again = torch.get_rng_state()
        torch.rand(2)
        assert numbers.end_forward(outer) == (None, False)
    assert again.equal(state) and not begun.equal(state)
    assert raw(outer) == ["sin", "rand", "rand_1"] and "drawn__aten__rand__default" in raw(inner)


def test_most_traces_know_no_generators_of_a_program() -> None:
    forward, _ = recorded(torch.sin)
    numbers = forward.listeners.random_numbers
    with numbers.kept(forward), forward:
        assert numbers.end_forward(forward) == (None, False) and "own_generators" not in forward.listeners
        torch.Generator()
        assert "own_generators" in forward.listeners


def test_a_draw_on_another_device_behind_a_seed_is_refused() -> None:
    forward, (x) = recorded(torch.sin, Spec.of(torch.empty(3, device="meta")))
    with forward.listeners.random_numbers.kept(forward), forward:
        torch.manual_seed(1)
        with pytest.raises(TraceError, match="draws on meta"):
            torch.rand_like(x)


def test_a_state_that_backward_leaves_is_refused() -> None:
    forward, _ = recorded(torch.sin)
    numbers = forward.listeners.random_numbers
    with numbers.kept(forward):
        fork, _ = gone_backward(forward, lambda tangent: torch.rand_like(tangent))
        numbers.end_backward(fork)
        fork, _ = gone_backward(forward, lambda tangent: (torch.manual_seed(3), torch.rand_like(tangent)))
        with pytest.raises(TraceError, match="leaves another one when gradients are computed"):
            numbers.end_backward(fork)


def test_a_result_that_is_a_state_is_one_of_the_call() -> None:
    forward, _ = recorded(torch.sin)
    numbers = forward.listeners.random_numbers
    with numbers.kept(forward), forward:
        state = torch.get_rng_state()
        torch.rand(3)
        for each in (state, torch.get_rng_state()):
            found = numbers.with_state(forward, each)
            assert type(found) is MetaTensor and found.meta_tag.target is GENERATOR_STATE
        assert [n.target for n in forward.in_order()][-3:-1] == [GENERATOR_STATE, torch.ops.aten.rand.default]
        other = torch.Generator().manual_seed(2).get_state()
        assert numbers.with_state(forward, other) is other and numbers.with_state(forward, None) is None


def test_another_thread_may_draw_meanwhile() -> None:
    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept(forward), forward:
        torch.rand(3)
        thread = threading.Thread(target=lambda: torch.rand(2000))
        thread.start()
        thread.join()
        torch.rand(3)
        thread = threading.Thread(target=lambda: torch.rand(3))
        thread.start()
        thread.join()
        assert forward.listeners.random_numbers.end_forward(forward) == (None, False)
    assert raw(forward) == ["sin", "rand", "rand_1"]


def test_backwards_that_seed_know_nothing_of_each_other() -> None:
    def draws_twice(tangent: MetaTensor) -> Any:
        torch.manual_seed(0)
        torch.rand_like(tangent)
        torch.manual_seed(0)
        return torch.rand_like(tangent)

    forward, _ = recorded(torch.sin)
    with forward.listeners.random_numbers.kept(forward):
        first, second = gone_backward(forward, draws_twice), gone_backward(forward, draws_twice)
    drawn = "drawn__aten__rand_like__default"
    for made in (first, second):
        (constant, _), *rest = finished(*made)[2:]
        assert constant.startswith("_constant")
        assert rest == [(rest[0][0], [constant, "tangents_1"]), (rest[1][0], [rest[0][0]])] and rest[0][0].startswith(
            drawn
        )


def test_no_mode_sees_states() -> None:
    """So a trace reads and sets them where modes are on."""

    class Sees(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(func)

    class SeesOperators(PassOn):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(func)

    before = torch.get_rng_state()
    with Sees(), SeesOperators(), FakeTensorMode():
        state = torch.default_generator.get_state()
        torch.default_generator.set_state(state)
    assert type(state) is torch.Tensor and bool((state == before).all())


@pytest.mark.parametrize("draws", [0, 1, 623, 624, 2000])
def test_a_state_of_no_seed_stays_one(draws: int) -> None:
    generator = torch.Generator().manual_seed(5)
    torch.empty(draws).random_(generator=generator)
    before = generator.get_state()

    def marked(state: torch.Tensor, number: int) -> torch.Tensor:
        other = torch.Generator()
        marks = generator_of.mark(other, state, number)
        assert other.initial_seed() == 5 and generator_of.state_bytes(other.get_state()) == marks
        return other.get_state()

    made = [marked(before, i) for i in range(3)]
    inner = [marked(made[0], i) for i in range(3)]
    for drawn in (0, 1, 700):
        states = set()
        for state in (before, *made, *inner):
            generator.set_state(state)
            torch.empty(drawn).random_(generator=generator)
            states.add(generator_of.state_bytes(generator.get_state()))
        assert len(states) == 7
