"""Which results are in one part of backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from subclass_aot.engine.trace.parts import parts_of
from tests.engine.trace.stages import backward_of

A, B = torch.rand(3, 3, requires_grad=True), torch.rand(3, 3, requires_grad=True)


def shared(join: Callable[[Any], Any]) -> Any:
    h = join(A)
    return h + 1, h + 2


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


def hooked(x: Any) -> Any:
    h = x + 1
    h.grad_fn.register_hook(lambda *gradients: None)
    return h


NO_BOND: tuple[Callable[[Any], Any], ...] = (
    lambda x: x + 1, lambda x: x.t(), lambda x: x.double(), lambda x: x.sum(), lambda x: torch.cat([x, B]),
    lambda x: -x, lambda x: x[0], lambda x: x.expand(2, 3, 3), lambda x: x.clone(), lambda x: x,
    lambda x: x.view(-1).reshape(3, 3),
)  # fmt: skip
BONDS = (torch.exp, lambda x: x * 2, lambda x: x @ B, Doubled.apply, hooked, lambda x: x.clone().t_().mul_(B))


@pytest.mark.parametrize("join", NO_BOND)
def test_results_that_share_what_saves_nothing(join: Callable[[Any], Any]) -> None:
    results = shared(join)
    assert parts_of(results, ()) == ((0,), (1,))
    for result in results:  # as in eager mode, where this is no error
        result.sum().backward()


@pytest.mark.parametrize("join", BONDS)
def test_results_that_share_what_may_save(join: Callable[[Any], Any]) -> None:
    assert parts_of(shared(join), ()) == ((0, 1),)


def test_the_history_of_an_input_is_no_bond() -> None:
    x = Doubled.apply(A)
    assert parts_of((x + 1, x * B), ()) == ((0, 1),)
    assert parts_of((x + 1, x * B), {x.grad_fn}) == ((0,), (1,))


def test_bonds_lead_from_one_to_the_next() -> None:
    g, h, k = A.exp(), B.exp(), A.sin()
    assert parts_of((g + 1, g + h, k * 2, h + 2, B.sin()), ()) == ((0, 1, 3), (2,), (4,))


def test_what_hides_where_it_leads_and_many_results() -> None:
    hidden = checkpoint(lambda x: x.sin(), A, use_reentrant=True)
    assert parts_of((hidden, B * 2), ()) == ((0, 1),)
    for count, parts in ((16, 16), (17, 1), (200, 1)):
        assert len(parts_of([A * 2 for _ in range(count)], ())) == parts


def test_inputs_with_a_history_are_not_what_results_share() -> None:
    a = A * 1
    _, backward = backward_of(lambda a, b: (a * b, a.exp()), a, B)
    assert not backward.parts  # nobody asks for them
    assert len(backward.gradients) == 2
