"""Operators that take the state they draw from: they give what the operator gives there, and the state behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.graph import drawn_named, name_of_drawn
from subclass_aot.engine.graph.drawn import GENERATOR_STATE, drawn

aten: Any = torch.ops.aten
STATE = torch.Generator().manual_seed(7).get_state()


@torch.library.custom_op("subclass_aot_tests::noisy", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def noisy(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Adds noise."""
    return x + torch.randn(x.shape) * scale


@noisy.register_fake
def _(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


CALLS: dict[Any, Callable[[], tuple[Any, ...]]] = {
    aten.rand.default: lambda: ([2, 3],),
    aten.randn_like.default: lambda: (torch.ones(2, 3),),
    aten.randperm.default: lambda: (5,),
    aten.randint.low: lambda: (2, 9, [3]),
    aten.bernoulli.p: lambda: (torch.ones(4), 0.5),
    aten.multinomial.default: lambda: (torch.ones(4), 2),
    aten.normal.Tensor_Tensor: lambda: (torch.zeros(3), torch.ones(3)),
    aten.native_dropout.default: lambda: (torch.ones(6), 0.5, True),
    aten.uniform_.default: lambda: (torch.zeros(3, 2).t(),),
    aten.bernoulli_.float: lambda: (torch.zeros(6), 0.5),
    aten.rrelu_with_noise.default: lambda: (-torch.ones(5), torch.zeros(5), 0.1, 0.3, True),
    aten.exponential_.default: lambda: (torch.ones(3), 2.0),
    torch.ops.subclass_aot_tests.noisy.default: lambda: (torch.ones(3), 0.5),
}


@pytest.mark.parametrize("func", CALLS, ids=str)
def test_it_draws_as_the_operator_does(func: Any) -> None:
    ambient, args = torch.get_rng_state(), CALLS[func]()
    given = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
    *made, after = drawn(func)(STATE, *given)
    assert torch.get_rng_state().equal(ambient)
    assert all(
        x.equal(y) for x, y in zip(given, args, strict=True) if isinstance(x, torch.Tensor)
    )  # nothing is written
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(STATE)
        result = func(*args)
        assert after.equal(torch.get_rng_state())
    results = [x for x in (result if isinstance(result, tuple) else (result,)) if all(x is not a for a in args)]
    written = [args[position] for position, _ in effects_of(func).writes]
    for x, y in zip((*results, *written), made, strict=True):
        assert x.equal(y) and x.stride() == y.stride() and x.dtype is y.dtype
    *without_data, state = drawn(func)(
        MetaTensor(STATE), *[MetaTensor(x) if isinstance(x, torch.Tensor) else x for x in given]
    )
    assert [(x.shape, x.stride(), x.dtype) for x in (*made, after)] == [
        (x.shape, x.stride(), x.dtype) for x in (*without_data, state)
    ]


def test_it_is_an_operator_without_effects() -> None:
    effects = effects_of(drawn(aten.uniform_.default))
    assert effects.pure and not effects.random and drawn(aten.uniform_.default) is drawn(aten.uniform_.default)


def test_the_state_itself_counts_as_a_draw() -> None:
    assert effects_of(GENERATOR_STATE).random and GENERATOR_STATE().equal(torch.get_rng_state())


def test_names() -> None:
    def named(name: str) -> Any:
        return {"aten.rand.default": aten.rand.default, "aten.sin.default": aten.sin.default}[name]

    for func in (drawn(aten.rand.default), GENERATOR_STATE):
        name = name_of_drawn(func)
        assert name is not None and drawn_named(name, named) is func
    assert name_of_drawn(aten.rand.default) is None
    assert drawn_named("aten.rand.default", named) is None and drawn_named("drawn aten.sin.default", named) is None
