"""Generators of a program's own: the numbers of eager at each call, and the state that eager leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import TraceError

Program = Callable[[Any], Any]


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Box:
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


class Noisy(nn.Module):
    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.generator = generator

    def forward(self, x: Any) -> Any:
        return self.weight * x + torch.randn(x.shape, generator=self.generator)


def factories(g: Any, _: Any) -> Program:
    return lambda x: (
        x * torch.rand(3, generator=g), torch.randn(2, 2, generator=g), torch.randperm(5, generator=g),
        torch.randint(0, 9, (4,), generator=g), torch.multinomial(torch.ones(6), 3, generator=g),
        torch.bernoulli(torch.full((4,), 0.5), generator=g), torch.normal(torch.zeros(3), torch.ones(3), generator=g),
        torch.normal(1.0, 2.0, (3,), generator=g), torch.poisson(torch.full((3,), 4.0), generator=g),
        torch.rand(3, out=torch.empty(3), generator=g),
    )  # fmt: skip


def in_place(g: Any, _: Any) -> Program:
    return lambda x: (
        (x * 1).normal_(generator=g), torch.empty(3).uniform_(generator=g), torch.empty(3).exponential_(generator=g),
        torch.empty(3).bernoulli_(0.4, generator=g), torch.empty(3).random_(generator=g),
        torch.empty(3).geometric_(0.3, generator=g), nn.init.xavier_uniform_(torch.empty(3, 3), generator=g),
        nn.init.kaiming_normal_(torch.empty(3, 3), generator=g),
    )  # fmt: skip


def holders(g: Any, h: Any) -> Program:
    """One generator by two ways, and another one; beside draws from that of the process."""
    first, second, table = Box(g=[g]), Box(g=g), {"h": (1, h)}

    def program(x: Any) -> Any:
        one, two = torch.rand(3, generator=first.g[0]), torch.rand(3, generator=second.g)
        return x * one, two, torch.rand(2, generator=table["h"][1]), torch.rand(2)  # type: ignore[call-overload]

    return program


def seeds_first(g: Any, _: Any) -> Program:
    def program(x: Any) -> Any:
        g.manual_seed(3)
        return x * torch.rand(3, generator=g)

    return program


def seeds_last(g: Any, _: Any) -> Program:
    def program(x: Any) -> Any:
        noise = torch.rand(3, generator=g)
        g.manual_seed(3)
        return x * noise

    return program


def goes_back(g: Any, _: Any) -> Program:
    def program(x: Any) -> Any:
        state = g.get_state()
        first = torch.rand(3, generator=g)
        g.set_state(state)
        return x * first, torch.randn(2, generator=g)

    return program


def puts_back(g: Any, _: Any) -> Program:
    def program(x: Any) -> Any:
        state = g.get_state()
        noise = torch.rand(3, generator=g)
        g.set_state(state)
        return x * noise

    return program


def takes_over(g: Any, h: Any) -> Program:
    """Both draw from one state, other operators: each goes on from its own."""

    def program(x: Any) -> Any:
        h.set_state(g.get_state())
        first, second = torch.rand(3, generator=g), torch.randperm(7, generator=h)
        return x * first, second, torch.rand(3, generator=g), torch.rand(2, generator=h)

    return program


def exchanges(g: Any, h: Any) -> Program:
    def program(x: Any) -> Any:
        state = g.get_state()
        g.set_state(h.get_state())
        h.set_state(state)
        return x * 2

    return program


def made_inside(g: Any, _: Any) -> Program:
    def program(x: Any) -> Any:
        seventh, first, copy = torch.Generator().manual_seed(7), torch.Generator(), torch.Generator()
        copy.set_state(g.get_state())
        assert isinstance(g, torch.Generator) and isinstance(copy, torch.Generator)
        return [x * 1] + [torch.rand(3, generator=each) for each in (seventh, seventh, first, copy, g)]

    return program


def of_the_process(g: Any, h: Any) -> Program:
    def program(x: Any) -> Any:
        g.set_state(torch.get_rng_state())
        found = torch.rand(3, generator=g), torch.rand(3), torch.rand(3, generator=torch.default_generator)
        torch.set_rng_state(h.get_state())
        return x * 1, *found, torch.rand(3), torch.rand(3, generator=h)

    return program


PROGRAMS: dict[str, Callable[[Any, Any], Program]] = {
    "factories": factories,
    "in place": in_place,
    "holders": holders,
    "a module": lambda g, _: Noisy(g),
    "sizes": lambda g, _: lambda x: x * torch.rand(x.shape, generator=g),
    "a seed first": seeds_first,
    "a seed last": seeds_last,
    "goes back": goes_back,
    "puts back": puts_back,
    "takes over": takes_over,
    "exchanges": exchanges,
    "made inside": made_inside,
    "of the process": of_the_process,
    "nothing": lambda g, _: lambda x: x * 2,
}


def results_of(
    program: Program, generators: list[torch.Generator], sizes: tuple[int, ...], between: Callable[[Any], None]
) -> list[Any]:
    """What calls give, and leave: gradients, and states of generators."""
    torch.manual_seed(5)
    found: list[Any] = []
    for size in sizes:
        x = torch.ones(size, requires_grad=True)
        results = [r for r in torch.utils._pytree.tree_leaves(program(x)) if isinstance(r, torch.Tensor)]
        results[0].sum().backward()
        found += [r.detach().clone() for r in (*results, x.grad)]  # type: ignore[union-attr]
        found += [*[g.get_state() for g in generators], torch.get_rng_state()]
        between(generators[0])
    return found


def agree(
    make: Callable[[Any, Any], Program],
    sizes: tuple[int, ...] = (3, 3, 3),
    between: Any = lambda g: None,
    **options: Any,
) -> Any:
    ours, eagers = [seeded(1), seeded(2)], [seeded(1), seeded(2)]
    compiled = aot_compile(make(*ours), **options)
    expected = results_of(make(*eagers), eagers, sizes, between)
    for got, value in zip(results_of(compiled, ours, sizes, between), expected, strict=True):
        assert got.equal(value)
    return compiled


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager_mode(name: str) -> None:
    assert not agree(PROGRAMS[name]).recompiles


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_sizes_that_change(dynamic: bool | None) -> None:
    agree(PROGRAMS["sizes"], sizes=(3, 4, 5, 6), dynamic=dynamic)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor() -> None:
    ours, eagers = [seeded()], [seeded()]
    compiled = aot_compile(PROGRAMS["sizes"](ours[0], None), fw_compiler="inductor", dynamic=True)
    expected = results_of(PROGRAMS["sizes"](eagers[0], None), eagers, (3, 4), lambda g: None)
    for got, value in zip(results_of(compiled, ours, (3, 4), lambda g: None), expected, strict=True):
        torch.testing.assert_close(got, value)


@pytest.mark.parametrize("between", [lambda g: g.manual_seed(9), lambda g: torch.rand(7, generator=g)])
def test_others_use_it_between_calls(between: Any) -> None:
    assert not agree(PROGRAMS["sizes"], between=between).recompiles


def test_arguments() -> None:
    compiled = aot_compile(lambda x, g: x + torch.rand(3, generator=g[0]))
    for seed in (1, 2):
        g, expected = seeded(seed), seeded(seed)
        for _ in range(2):
            assert compiled(torch.zeros(3), [g]).equal(torch.rand(3, generator=expected))
    assert not compiled.recompiles


def test_a_new_one_is_another_at_each_call() -> None:
    def program(x: Any) -> Any:
        g = torch.Generator().manual_seed(3)
        noise = torch.rand(2, generator=g)
        return noise, Box(g=g)

    compiled, expected = aot_compile(program), program(torch.ones(2))[1].g
    first, second = (compiled(torch.ones(2))[1].g for _ in range(2))
    assert first is not second and type(first) is torch.Generator
    assert expected.get_state().equal(first.get_state()) and expected.get_state().equal(second.get_state())


def test_values_that_are_looked_at() -> None:
    def make(g: Any, _: Any) -> Program:
        return lambda x: x * 2 if torch.rand((), generator=g) > 0.5 else x * 3

    agree(make, sizes=(3,) * 8)


def test_second_derivatives() -> None:
    found = []
    for compile in (lambda fn: fn, lambda fn: aot_compile(fn, double_backward=True)):
        g = seeded()
        program = compile(lambda x, g=g: (x**3 * torch.rand(3, generator=g)).sum())
        for _ in range(2):
            x = torch.ones(3, requires_grad=True)
            (first,) = torch.autograd.grad(program(x), x, create_graph=True)
            found.append([first.detach(), torch.autograd.grad(first.sum(), x)[0], g.get_state()])
    for expected, got in zip(found[:2], found[2:], strict=True):
        assert all(a.equal(b) for a, b in zip(expected, got, strict=True))


def test_files(tmp_path: Path) -> None:
    def make(g: torch.Generator) -> Program:
        return lambda x: x + torch.rand(3, generator=g)

    compiled, path = aot_compile(make(seeded())), tmp_path / "drawn"
    compiled(torch.zeros(3))
    compiled.save(path)
    loaded, expected = sa.load_compiled(path, make(seeded(5)), trust=True), seeded(5)
    for _ in range(2):
        assert loaded(torch.zeros(3)).equal(torch.rand(3, generator=expected))


def test_wrappers() -> None:
    g = seeded()
    noise, other = torch.rand(3, generator=seeded()), torch.rand(3, generator=seeded(2))
    result = aot_compile(lambda t: t * torch.rand(3, generator=g))(TwoTensor(torch.ones(3), other))
    assert result.a.equal(noise) and result.b.equal(noise * other)


def test_a_trace_draws_nothing() -> None:
    g = seeded()
    sa.trace_joint(lambda x: x + torch.rand(3, generator=g), torch.ones(3))
    with sa.meta():
        torch.rand(3, generator=g)
    assert g.get_state().equal(seeded().get_state()) and type(torch.Generator()) is torch.Generator


def test_what_another_thread_makes_is_not_of_the_trace() -> None:
    made: list[torch.Generator] = []

    def program(x: Any) -> Any:
        thread = threading.Thread(target=lambda: made.append(torch.Generator().manual_seed(1)))
        thread.start()
        thread.join()
        return x + torch.rand(3, generator=made[-1])

    with pytest.raises(TraceError, match="which somebody holds whom the call does not reach"):
        aot_compile(program)(torch.ones(3))


class Held:
    __module__ = "logging"  # attributes of classes of libraries are not walked
    generator = seeded()


class DrawsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, draw: Any) -> Any:
        ctx.draw = draw
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return gradient * ctx.draw(), None


def by_chance(g: Any, x: Any) -> Any:
    g.seed()
    return x


def stays(g: Any, x: Any) -> Any:
    made = torch.Generator()
    x = x * torch.rand(3, generator=made)
    x.register_hook(lambda gradient, made=made: gradient)
    return x


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "unreached": (lambda g, x: torch.rand(3, generator=Held.generator), "somebody holds whom the call does not reach"),
    "in backward": (
        lambda g, x: DrawsInBackward.apply(x, lambda: torch.rand(3, generator=g)),
        "another state when gradients were computed",
    ),
    "in backward, unreached": (
        lambda g, x: DrawsInBackward.apply(x, lambda: torch.rand(3, generator=Held.generator)),
        "somebody holds whom the call does not reach",
    ),
    "by chance": (by_chance, "when the function is over"),
    "a seed by chance": (lambda g, x: torch.rand(3, generator=by_chance(g, g)), "none of a seed below"),
    "a clone": (lambda g, x: torch.rand(3, generator=g.clone_state()), "somebody holds whom the call does not reach"),
    "stays": (stays, "somebody holds whom the call does not reach"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    program, reason = REFUSED[name]
    g = seeded()
    with pytest.raises(TraceError, match=reason):
        aot_compile(lambda x: program(g, x))(torch.ones(3, requires_grad=True))
    assert g.get_state().equal(seeded().get_state())


def test_seeds_in_backward_are_the_same_each_time() -> None:
    def draw() -> Any:
        return torch.rand(3, generator=torch.Generator().manual_seed(4))

    compiled = aot_compile(lambda x: DrawsInBackward.apply(x, draw))
    for _ in range(2):
        x = torch.ones(3, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad is not None and x.grad.equal(draw())
