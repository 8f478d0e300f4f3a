"""Programs in which several rows meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch


def swap(x: Any, y: Any) -> None:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


def each_into_the_other(x: Any, y: Any) -> Any:
    x.add_(y)
    y.add_(x)
    return x, y, x * y


def through_a_view(x: Any, y: Any) -> Any:
    part = x[1:]
    part.mul_(2)
    return part, x


def through_a_detached_twin(x: Any, y: Any) -> Any:
    twin = x.detach()
    twin.mul_(2)
    return x * y, twin


def views_beside_their_base(x: Any, y: Any) -> Any:
    z = x * y
    return z.t(), z[0], z


def written_intermediate(x: Any, y: Any) -> Any:
    z = x * 2
    z.mul_(3)
    z[0].mul_(2)
    return z * y


def turned_and_written(x: Any, y: Any) -> Any:
    x.t_()
    x.mul_(2)
    return x, y * 1


def overwritten(x: Any, y: Any) -> Any:
    x.copy_(y)
    return x


def filled(x: Any, y: Any) -> Any:
    x.fill_(2)
    x[0].mul_(3)
    return x.t(), x * y


PROGRAMS: tuple[Callable[..., Any], ...] = (
    swap,
    each_into_the_other,
    through_a_view,
    through_a_detached_twin,
    views_beside_their_base,
    written_intermediate,
    turned_and_written,
    overwritten,
    filled,
)


def gradients(args: Any, results: Any) -> Any:
    """Of everything that has a gradient, the arguments as they are after the call included."""
    ends = [t for t in (*args, *(results or ())) if isinstance(t, torch.Tensor) and t.requires_grad]
    roots = [x.root for x in args]
    return torch.autograd.grad(sum((t * t).sum() for t in ends), roots, allow_unused=True)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_with_gradients(agree: Any, kind: Any, program: Any) -> None:
    agree(program, lambda: (kind.non_leaf(3, 4), kind.non_leaf(3, 4, seed=1)), gradients)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_without_gradients(agree: Any, kind: Any, program: Any) -> None:
    agree(program, lambda: (kind(3, 4), kind(3, 4, seed=1)))


@pytest.mark.inductor("two", "affine")
def test_inputs_that_change_places(agree: Any, kind: Any) -> None:
    """Inductor alone takes the copy for superfluous, and both inputs end with one value."""
    agree(swap, lambda: (kind(3, 4), kind(3, 4, seed=1)))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_on_one_argument_twice(agree: Any, kind: Any, program: Any) -> None:
    def make() -> Any:
        x = kind(4, 4)
        return x, x

    agree(program, make)
