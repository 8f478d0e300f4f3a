"""What autograd takes for one tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.engine.aliasing import (
    as_non_leaf,
    autograd_base,
    have_one_history,
    have_own_histories,
    is_autograd_leaf,
)


@pytest.mark.parametrize(
    "x", [torch.rand(4), torch.rand(4, requires_grad=True), TwoTensor(torch.rand(4), torch.rand(4))]
)
def test_a_view_of_a_view_has_the_first_tensor_as_its_base(x: torch.Tensor) -> None:
    assert autograd_base(x) is x and autograd_base(x[1:]) is x and autograd_base(x[1:][1:]) is x


def test_what_shares_memory_without_autograd_has_a_history_of_its_own() -> None:
    x = torch.rand(4)
    apart = x.detach()
    assert apart.data_ptr() == x.data_ptr() and autograd_base(apart) is apart
    copied = x[1:].clone()
    assert autograd_base(copied) is copied


def test_histories_of_several_tensors() -> None:
    x, y = torch.rand(4), torch.rand(4)
    assert have_one_history(x) and have_one_history(x[1:], x, x[:2]) and not have_one_history(x, x[1:], x.detach())
    assert have_own_histories([x, y[1:], x.detach()], [x.detach(), y.detach()])
    assert not have_own_histories([x, y, x[1:]], [])
    assert not have_own_histories([x, y], [torch.rand(4), y[1:]])


def test_a_write_reaches_whoever_has_the_same_base() -> None:
    """The oracle is autograd: a write through one view gives the others another `grad_fn`, but not what is apart."""
    x = torch.rand(4, requires_grad=True) * 1
    views, apart = [x[:2], x[1:], x.view(2, 2)[0]], x.detach()
    before = [view.grad_fn for view in views]
    views[0].mul_(2)
    assert all(autograd_base(view) is x and view.grad_fn is not fn for view, fn in zip(views, before, strict=True))
    assert autograd_base(apart) is not x and apart.grad_fn is None


@pytest.mark.parametrize("make", [lambda: torch.rand(4), lambda: TwoTensor(torch.rand(4), torch.rand(4))])
def test_a_gradient_ends_in_a_leaf(make: Any) -> None:
    x, other = make(), make().requires_grad_()
    with torch.no_grad():
        views = [other[1:], other[1:].requires_grad_(), x[1:].requires_grad_()]
    assert [is_autograd_leaf(t) for t in (x, other, other * 2, other[1:])] == [False, True, False, False]
    assert [view.requires_grad and view.is_leaf for view in views] == [True, True, True]
    assert [is_autograd_leaf(view) for view in views] == [False, True, True]
    for view in views:  # the oracle: whether one arrives
        with torch.enable_grad():
            result = view * other[1:] if view is views[0] else view * 1
        result.sum().backward()
    assert [view.grad is not None for view in views] == [False, True, True]


def test_none_ends_in_a_view_that_autograd_has_given_up() -> None:
    x = torch.rand(4, requires_grad=True) * 1
    first, second = x.split(2)
    with torch.no_grad():
        view = x[:2]
    x.mul_(2)
    assert not is_autograd_leaf(view) and not is_autograd_leaf(first)


def test_a_history_is_given() -> None:
    """Writes in place are allowed, autograd sees no view, and the gradient goes to the start."""
    start, tensor = torch.ones(2, requires_grad=True), torch.full((2,), 3.0)
    made = as_non_leaf(start, tensor)
    assert made.data_ptr() == tensor.data_ptr() and not made.is_leaf and not made._is_view()
    made.mul_(2).sum().backward()
    assert start.grad is not None and start.grad.tolist() == [2, 2]
