"""Seeds and states of the generator that a program sets: the same numbers as in eager mode, at each call."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from subclass_aot import TwoTensor, aot_compile, compile_joint, export_forward, load, trace_joint
from subclass_aot.errors import ExportError
from subclass_aot.testing.compare import dense_leaves


def fork() -> Any:
    return torch.random.fork_rng(devices=[])


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """As lightning has it."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    yield
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


def by_hand(x: Any) -> Any:
    state = torch.get_rng_state()
    torch.manual_seed(3)
    y = functional.dropout(x, 0.5)
    torch.set_rng_state(state)
    return y, torch.rand(2)


def in_a_fork(x: Any) -> Any:
    first = torch.rand(2)
    with fork():
        torch.manual_seed(7)
        noise, more = torch.randn_like(x), torch.rand_like(x)
    return x + noise * more, torch.rand(3), first


def in_forks_of_forks(x: Any) -> Any:
    with fork():
        torch.manual_seed(1)
        a = torch.rand_like(x)
        with fork():
            torch.manual_seed(2)
            b = torch.rand_like(x)
        c = torch.rand_like(x)
    return a, b, c, torch.rand(2)


def isolated_with_all_seeds(x: Any) -> Any:
    with isolated():
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        y = torch.bernoulli(x.sigmoid())
    return y, torch.rand(2)


def through_the_generator(x: Any) -> Any:
    generator = torch.default_generator
    state = generator.get_state()
    generator.manual_seed(4)
    a = torch.rand(2, generator=generator)
    generator.set_state(state)
    return x * 2, a, torch.rand(2)


def left_behind(x: Any) -> Any:
    first = torch.rand(2)
    torch.manual_seed(11)
    return x + torch.rand(x.shape), first


def left_without_a_draw(x: Any) -> Any:
    torch.manual_seed(11)
    return x + 1


def the_seed_that_is_set(x: Any) -> Any:
    torch.manual_seed(0)
    return x * torch.rand(x.shape)


def the_same_twice(x: Any) -> Any:
    torch.manual_seed(1)
    a = torch.rand(3)
    torch.manual_seed(1)
    return x.sin(), a, torch.rand(3)


def a_fork_alone(x: Any) -> Any:
    with fork():
        return functional.dropout(x, 0.5)


def a_fork_and_the_same_again(x: Any) -> Any:
    with fork():
        a = torch.rand_like(x)
    return a, torch.rand_like(x), torch.rand(2)


def a_fork_and_another_draw(x: Any) -> Any:
    with fork():
        a = torch.rand(3)
    return x + 1, a, torch.randn(4)


def a_fork_in_the_middle(x: Any) -> Any:
    first = torch.rand(2)
    with fork():
        a = torch.rand_like(x)
    return a, first


def other_probability(x: Any) -> Any:
    state = torch.get_rng_state()
    a = functional.dropout(x, 0.5)
    torch.set_rng_state(state)
    return a, functional.dropout(x, 0.1)


def in_place(x: Any) -> Any:
    with fork():
        torch.manual_seed(5)
        made = (x * 2).uniform_(), torch.zeros(3, 2).t().bernoulli_(0.5), torch.empty(4).exponential_()
        y = functional.dropout(x * 1, 0.3, inplace=True)
    return *made, y, torch.rand(2)


def many_kinds(x: Any) -> Any:
    with fork():
        torch.manual_seed(5)
        made = (
            torch.randperm(5), torch.randint(0, 9, (3,)), torch.multinomial(x.sigmoid(), 2), torch.poisson(x.abs() + 1),
            torch.normal(0.0, x.abs() + 1), functional.rrelu(x, training=True), torch.rand(2, out=torch.empty(2)),
            functional.dropout2d(x.view(1, -1, 1, 1)), functional.gumbel_softmax(x), functional.alpha_dropout(x, 0.3),
        )  # fmt: skip
    return *made, torch.rand(2)


def in_a_checkpoint(x: Any) -> Any:
    def inside(x: Any) -> Any:
        with fork():
            torch.manual_seed(7)
            noise = torch.rand_like(x)
        return (functional.dropout(x, 0.5) * noise).sin()

    return checkpoint(inside, x, use_reentrant=False)


def a_checkpoint_behind_a_seed(x: Any) -> Any:
    with fork():
        torch.manual_seed(7)
        y = checkpoint(lambda x: functional.dropout(x.sin(), 0.5).sin(), x, use_reentrant=False)
        z = torch.rand(2)
    return y, z, torch.rand(2)


def in_a_hook(x: Any) -> Any:
    def hook(gradient: Any) -> Any:
        with fork():
            torch.manual_seed(2)
            return gradient * torch.rand_like(gradient)

    y = x * 2
    if y.requires_grad:
        y.register_hook(hook)
    return y * 3, torch.rand(2)


def behind_a_look(x: Any) -> Any:
    with fork():
        torch.manual_seed(7)
        noise = torch.rand_like(x)
    return (noise * x if noise.sum() > 0 else x), torch.rand(2)


def states_between_draws(x: Any) -> Any:
    states = [torch.get_rng_state()]
    y = functional.dropout(x, 0.5)
    states += [torch.get_rng_state(), torch.get_rng_state()]
    return y, torch.rand(2), torch.get_rng_state(), *states


def a_state_alone(x: Any) -> Any:
    return x * 2, torch.get_rng_state()


def states_around_a_seed(x: Any) -> Any:
    before = torch.default_generator.get_state()
    with fork():
        torch.manual_seed(7)
        y, inside = x * torch.rand_like(x), torch.default_generator.get_state()
    return y, before, inside, torch.get_rng_state(), torch.rand(2)


def a_state_behind_a_look(x: Any) -> Any:
    before = torch.get_rng_state()
    y = functional.dropout(x, 0.5)
    state = torch.get_rng_state()
    return (y * 2 if (y.detach() * 0).sum() == 0 else y), torch.rand(2), before, state


class DrawsAgain(torch.autograd.Function):
    """As a reversible layer: backward computes forward again, by the state that forward has put into an object."""

    @staticmethod
    def forward(ctx: Any, x: Any, place: list[Any]) -> Any:
        ctx.save_for_backward(x)
        ctx.place = place
        place.append(torch.get_rng_state())
        return functional.dropout(x.sin(), 0.5)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        with fork(), torch.enable_grad():
            torch.set_rng_state(ctx.place[0])
            x = ctx.saved_tensors[0].detach().requires_grad_()
            y = functional.dropout(x.sin(), 0.5)
        return torch.autograd.grad(y, x, gradient)[0], None


def a_state_for_backward(x: Any) -> Any:
    first, second = [], []  # type: ignore[var-annotated]
    y = DrawsAgain.apply(functional.dropout(x, 0.1), first)  # type: ignore[no-untyped-call]
    y = DrawsAgain.apply(y, second)  # type: ignore[no-untyped-call]
    return y, torch.rand(2), *first, *second


PROGRAMS: list[Callable[[Any], Any]] = [
    by_hand, in_a_fork, in_forks_of_forks, through_the_generator, left_behind, left_without_a_draw,
    the_seed_that_is_set, the_same_twice, a_fork_alone, a_fork_and_the_same_again, a_fork_and_another_draw,
    a_fork_in_the_middle, other_probability, in_place, many_kinds, in_a_checkpoint, a_checkpoint_behind_a_seed,
    in_a_hook, behind_a_look, states_between_draws, a_state_alone, states_around_a_seed, a_state_behind_a_look,
    a_state_for_backward,
]  # fmt: skip
NOT_OF_WRAPPERS = {many_kinds, behind_a_look}


def use(function: Callable[[Any], Any], call: int, size: int = 3, wrapped: bool = False) -> list[Any]:
    """What a call gives, its gradient, and where it leaves the generator."""
    torch.manual_seed(call)
    x = torch.randn(size, generator=torch.Generator().manual_seed(call))
    x = (TwoTensor(x, x * 2) if wrapped else x).requires_grad_()
    made = function(x)
    results = [*made] if isinstance(made, tuple) else [made]
    state = torch.get_rng_state()
    ends = [r for r in results if r.requires_grad]
    gradients = torch.autograd.grad(ends, x, [torch.ones_like(r) for r in ends]) if ends else ()
    tensors = [leaf for t in (*results, *gradients) for leaf in dense_leaves(t)]
    return [*(t.detach().clone() for t in tensors), state, torch.get_rng_state(), torch.initial_seed()]


def equal(expected: list[Any], got: list[Any]) -> None:
    assert len(expected) == len(got)
    for i, (x, y) in enumerate(zip(expected, got, strict=True)):
        assert x.equal(y) if isinstance(x, torch.Tensor) else x == y, i


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_call_draws_as_in_eager_mode(program: Any, dynamic: bool | None) -> None:
    compiled = aot_compile(program, dynamic=dynamic)
    for call, size in enumerate((3, 3, 5)):
        equal(use(program, call, size), use(compiled, call, size))
    assert len(compiled.recompiles) <= 1


def test_states_of_other_generators() -> None:
    """A function that asks for those of Python and numpy runs itself."""
    compiled = aot_compile(isolated_with_all_seeds)
    with pytest.warns(UserWarning, match=r"(?s)the function itself ran.*random\.getstate\(\)") as warned:
        for call, size in enumerate((3, 3, 5)):
            equal(use(isolated_with_all_seeds, call, size), use(compiled, call, size))
    assert len(warned) == 1 and not compiled.recompiles


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in NOT_OF_WRAPPERS])
def test_wrappers(program: Any) -> None:
    compiled = aot_compile(program)
    for call in range(3):
        equal(use(program, call, wrapped=True), use(compiled, call, wrapped=True))


@pytest.mark.parametrize("program", [in_a_fork, left_behind, pytest.param(in_a_checkpoint, marks=pytest.mark.long)])
def test_behind_torch_compile(program: Any, fresh_dynamo: None) -> None:
    compiled = torch.compile(program, backend="subclass_aot")
    for call in range(2):
        equal(use(program, call), use(compiled, call))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("program", [in_a_fork, left_behind, a_fork_alone, in_place])
def test_without_gradients(program: Any, mode: Any) -> None:
    compiled = aot_compile(program)
    for call in range(2):
        found = []
        for function in (program, compiled):
            torch.manual_seed(call)
            with mode():
                made = function(torch.ones(3))
            found.append([*(made if isinstance(made, tuple) else (made,)), torch.get_rng_state()])
        equal(*found)


@pytest.mark.parametrize("program", [in_a_fork, in_place, in_a_checkpoint, a_checkpoint_behind_a_seed, left_behind])
def test_another_partition(program: Any) -> None:
    compiled = aot_compile(program, partition_fn=min_cut_rematerialization_partition)
    for call in range(2):
        equal(use(program, call), use(compiled, call))


@pytest.mark.filterwarnings("ignore")
def test_with_inductor_the_numbers_behind_a_seed_are_the_same() -> None:
    def program(x: Any) -> Any:
        with fork():
            torch.manual_seed(7)
            return (functional.dropout(x, 0.5) * torch.rand_like(x)).sin()

    compiled = aot_compile(program, fw_compiler="inductor")
    for call in range(2):
        for x, y in zip(use(program, call)[:2], use(compiled, call)[:2], strict=True):
            torch.testing.assert_close(x, y)


@pytest.mark.parametrize("program", [in_a_fork, left_behind, a_fork_alone, in_place, a_fork_in_the_middle])
def test_joint_graphs_and_files(program: Any, tmp_path: Path) -> None:
    joint = compile_joint(trace_joint(program, torch.randn(3).requires_grad_())).bind(program)
    equal(use(program, 1), use(joint, 1))
    compiled = aot_compile(program)
    use(compiled, 0)
    compiled.save(tmp_path / "file")
    equal(use(program, 1), use(load(tmp_path / "file", trust=True), 1))


@pytest.mark.filterwarnings("ignore:(?s).*is called inside torch.func.grad")
@pytest.mark.parametrize("program", [in_a_fork, left_behind, a_fork_alone, the_seed_that_is_set])
def test_transforms(program: Any) -> None:
    """Inside of what is compiled, and around it, where the program itself runs."""

    def loss(x: Any) -> Any:
        made = program(x)
        return (made[0] if isinstance(made, tuple) else made).sum()

    gradient = torch.func.grad(loss)
    for function in (aot_compile(gradient), torch.func.grad(aot_compile(loss))):
        for call in range(2):
            found = []
            for each in (gradient, function):
                torch.manual_seed(call)
                found.append([each(torch.ones(3)), torch.get_rng_state()])
            equal(*found)


@pytest.mark.filterwarnings("ignore:(?s).*is called inside torch.func.grad", "ignore:There is a performance drop")
@pytest.mark.parametrize("randomness", ["same", "different"])
def test_a_vmap_around(randomness: str) -> None:
    """What is drawn behind a seed is the same for all, as of a function of nothing else, unless they are to differ."""

    def program(x: Any) -> Any:
        with fork():
            torch.manual_seed(7)
            return x * torch.rand_like(x)

    found = []
    for function in (program, aot_compile(program)):
        torch.manual_seed(3)
        found.append([torch.func.vmap(function, randomness=randomness)(torch.ones(2, 3)), torch.get_rng_state()])
    equal(*found)


@pytest.mark.parametrize("program", [by_hand, left_behind, a_fork_alone, the_seed_that_is_set, left_without_a_draw])
def test_second_derivatives(program: Any) -> None:
    """They call the program once more, and the generator goes on as if they did not."""
    found = []
    for function in (program, aot_compile(program, double_backward=True)):
        torch.manual_seed(5)
        x = torch.ones(3, requires_grad=True)
        made = function(x)
        result, state = (made[0] if isinstance(made, tuple) else made).sin(), torch.get_rng_state()
        torch.rand(1)
        (first,) = torch.autograd.grad(result.sum(), x, create_graph=True)
        second = torch.autograd.grad(first.sum(), x)
        found.append([result, first, *second, state, torch.get_rng_state()])
    equal(*found)


def test_a_state_that_is_an_argument() -> None:
    """It is set as it is then, and where it leads is given back."""

    def program(x: Any, state: Any) -> Any:
        torch.set_rng_state(state)
        y = functional.dropout(x, 0.5)
        with fork():
            torch.manual_seed(1)
            y = y + torch.rand(3)
        return y, torch.rand(2), torch.get_rng_state()

    compiled = aot_compile(program)
    for seed in (3, 4):
        state = torch.Generator().manual_seed(seed).get_state()
        equal([*program(torch.ones(3), state), torch.get_rng_state()], [
            *compiled(torch.ones(3), state), torch.get_rng_state()
        ])  # fmt: skip
    assert not compiled.recompiles


def test_what_is_refused() -> None:
    assert_refused(lambda x: torch.manual_seed(torch.seed()), "takes a seed by chance")
    hook = lambda gradient: (torch.manual_seed(3), gradient)[1]  # noqa: E731
    assert_refused(lambda x: (y := x * 2, y.register_hook(hook))[0], "leaves another one when gradients are computed")

    def looks(x: Any) -> Any:
        state = torch.get_rng_state()
        if torch.rand(2).sum() > -1:
            torch.set_rng_state(state)
        return torch.randn(3)

    assert_refused(looks, "goes on from a state that it had before it read a value")


def assert_refused(program: Any, what: str) -> None:
    with pytest.raises(Exception, match=rf"(?s){what}.*Instead:"):
        aot_compile(program)(torch.ones(3, requires_grad=True))


@pytest.mark.parametrize("program", [in_a_fork, left_behind])
def test_no_program_of_torch_has_a_state(program: Any) -> None:
    with pytest.raises(ExportError, match="state of the generator"):
        export_forward(aot_compile(program), (torch.ones(3),))
