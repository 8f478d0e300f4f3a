from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot.backends.in_place import BACKWARD_OF, OVERWRITING, VIEW_OF, WRITING

aten = torch.ops.aten
ROWS = torch.tensor([2, 0])
MASK = torch.tensor([[True, False], [False, True], [True, True]])
ARGUMENTS: dict[Any, tuple[Any, ...]] = {
    aten.select_scatter.default: (0, 1),
    aten.slice_scatter.default: (0, 1, 3),
    aten.diagonal_scatter.default: (0, 0, 1),
    aten.select_backward.default: (0, 1),
    aten.slice_backward.default: (0, 1, 3, 1),
    aten.index_put.default: ([ROWS], torch.ones(2, 2)),
    aten.index_copy.default: (0, ROWS, torch.ones(2, 2)),
    aten.index_add.default: (0, ROWS, torch.ones(2, 2)),
    aten.index_fill.int_Scalar: (0, ROWS, 7.0),
    aten.index_fill.int_Tensor: (0, ROWS, torch.tensor(7.0)),
    aten.scatter.src: (0, ROWS[None], torch.ones(1, 2)),
    aten.scatter.value: (0, ROWS[None], 7.0),
    aten.scatter_add.default: (0, ROWS[None], torch.ones(1, 2)),
    aten.scatter_reduce.two: (0, ROWS[None], torch.ones(1, 2), "amax"),
    aten.masked_fill.Scalar: (MASK, 7.0),
    aten.masked_fill.Tensor: (MASK, torch.tensor(7.0)),
    aten.masked_scatter.default: (MASK, torch.ones(4)),
    aten.fill.Scalar: (7.0,),
    aten.fill.Tensor: (torch.tensor(7.0),),
}
"""What each operator is given, beside what it takes apart."""


def before() -> torch.Tensor:
    return -torch.arange(1.0, 7.0).view(3, 2)


@pytest.mark.parametrize("func", WRITING, ids=str)
def test_a_form_that_writes_leaves_what_the_operator_returns(func: Callable[..., torch.Tensor]) -> None:
    written = before()
    WRITING[func](written, *ARGUMENTS[func])
    assert torch.equal(written, func(before(), *ARGUMENTS[func]))
    assert not torch.equal(written, before())


@pytest.mark.parametrize("func", VIEW_OF, ids=str)
def test_a_write_into_the_view_leaves_what_the_operator_returns(func: Callable[..., torch.Tensor]) -> None:
    written = before()
    view = VIEW_OF[func](written, *ARGUMENTS[func])
    part = torch.ones_like(view)
    view.copy_(part)
    assert torch.equal(written, func(before(), part, *ARGUMENTS[func]))
    assert not torch.equal(written, before())


@pytest.mark.parametrize("func", BACKWARD_OF, ids=str)
def test_a_gradient_is_zero_outside_of_the_view(func: Callable[..., torch.Tensor]) -> None:
    total = torch.zeros(3, 2)
    view = BACKWARD_OF[func](total, *ARGUMENTS[func])
    gradient = torch.ones_like(view)
    view.add_(gradient)
    assert torch.equal(total, func(gradient, [3, 2], *ARGUMENTS[func]))
    assert total.any()


@pytest.mark.parametrize("func", OVERWRITING, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_pointwise_form_that_writes_leaves_what_the_operator_returns(func: Any, dtype: torch.dtype) -> None:
    needed = [str(a.type) for a in func._schema.arguments if not a.has_default_value()][1:]
    x = torch.rand(7, 33, dtype=dtype) + (-0.5 if func in (aten.abs.default, aten.relu.default) else 0.5)
    args = [torch.rand(33, dtype=dtype) + 0.5 if kind == "Tensor" else 0.75 for kind in needed]
    args = args if "clamp" not in str(func) else [0.75]
    written = x.clone()
    returned = OVERWRITING[func](written, *args)
    assert returned is written
    assert torch.equal(written, func(x, *args))
    assert not torch.equal(written, x)
