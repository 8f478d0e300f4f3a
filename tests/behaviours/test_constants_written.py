"""Writes into what a program has computed of tensors that are no arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from subclass_aot import TwoTensor
from subclass_aot.testing import check_compiled
from tests.constants import out_of_sight

generator = torch.Generator().manual_seed(0)
kept = out_of_sight(torch.randn(5, 3, generator=generator))
places = out_of_sight(torch.tensor([0, 3, 3, 1, 0]))
mask = out_of_sight(torch.tensor([True, False, True, True, False]))
wrapper = out_of_sight(TwoTensor(torch.randn(5, 3, generator=generator), torch.randn(5, 3, generator=generator)))


@torch.library.custom_op("subclass_aot_test::adds_one", mutates_args={"x"})
def adds_one(x: Tensor) -> None:
    x.add_(1)


@adds_one.register_fake
def _(x: Tensor) -> None:
    return None


class Backward(torch.autograd.Function):
    """It writes where gradients are computed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * (kept.kept * 2).add_(1)


def counts(w: Tensor) -> Any:
    """The mean over neighbours, as graph networks have it."""
    found = kept.kept.index_select(-2, places.kept)
    count = found.new_zeros(5)
    count.scatter_add_(0, places.kept, found.new_ones(5))
    return w / count.clamp(min=1)[:, None]


def of_views(w: Tensor) -> Any:
    n = kept.kept * 2
    part = n.view(-1)
    part[2:].add_(1)
    n.t()[0].mul_(2)
    return w * n, part


def of_another_look(w: Tensor) -> Any:
    return w * (kept.kept * 2).unsqueeze_(0).add_(1)


def of_places(w: Tensor) -> Any:
    n = kept.kept.clone()
    n[mask.kept] = 7.0
    return w * n


def by_a_custom_operator(w: Tensor) -> Any:
    n = kept.kept * 2
    adds_one(n)
    return w * n


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "a sum": lambda w: w * (kept.kept * 2).add_(1),
    "a new tensor": lambda w: w * kept.kept.new_zeros(5, 1).add_(1),
    "a scatter": counts,
    "views": of_views,
    "other sizes": of_another_look,
    "places": of_places,
    "a custom operator": by_a_custom_operator,
    "out": lambda w: w * torch.add(kept.kept, 1, out=kept.kept.new_empty(5, 3)),
    "several at once": lambda w: w * torch.stack([part.mul(2).add_(1) for part in kept.kept.unbind(0)]),
    "a wrapper": lambda w: w * (wrapper.kept * 2).add_(1),
    "in backward": Backward.apply,
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_is_read(name: str, grad: bool) -> None:
    check_compiled(PROGRAMS[name], (torch.rand(5, 3).requires_grad_(grad),))
