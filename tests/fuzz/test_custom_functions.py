"""The functions of random programs give views, whose gradients are others than those of views."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.fuzz import custom_functions as own


@pytest.mark.parametrize(
    "name, factor", [("reverse", -1), ("itself", 2), ("turned", 3), ("hooked", 3), ("between", 3), ("noted", 5)]
)
def test_gradients(name: str, factor: int) -> None:
    function: Any = getattr(own, name)
    x = torch.rand(2, 3, requires_grad=True)
    view = function(x)
    view.sum().backward()
    assert view._base is x and x.grad is not None and x.grad.eq(factor).all()
    assert function(torch.rand(2, 3)).grad_fn is None


def test_two_views() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    first, second = own.both(x)
    (first.sum() * 3 + second.sum()).backward()
    assert first._base is x and second._base is x and x.grad is not None and x.grad.eq(2).all()
