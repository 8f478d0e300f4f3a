"""What autograd takes for one tensor."""

from __future__ import annotations

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.aliasing import autograd_base


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


def test_a_write_reaches_whoever_has_the_same_base() -> None:
    """The oracle is autograd: a write through one view gives the others another `grad_fn`, but not what is apart."""
    x = torch.rand(4, requires_grad=True) * 1
    views, apart = [x[:2], x[1:], x.view(2, 2)[0]], x.detach()
    before = [view.grad_fn for view in views]
    views[0].mul_(2)
    assert all(autograd_base(view) is x and view.grad_fn is not fn for view, fn in zip(views, before, strict=True))
    assert autograd_base(apart) is not x and apart.grad_fn is None
