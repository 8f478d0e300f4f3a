"""What is called in the place of an overload is the same operator: equal results on samples, as many as there are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.backends.bindings import BINDINGS, binding_of

aten: Any = torch.ops.aten
X, Y, V = torch.rand(3, 3) + 0.5, torch.rand(3, 3) + 0.5, torch.rand(3)

ARGUMENTS: dict[Any, tuple[Any, ...]] = {
    **{getattr(aten, name).Tensor: (X, Y) for name in ("add", "sub", "mul", "div", "add_")},
    **{getattr(aten, name).default: (X, Y) for name in ("mm", "maximum", "minimum", "copy_")},
    aten.addmm.default: (V, X, Y),
    aten.bmm.default: (X[None], Y[None]),
    aten.cat.default: ([X, Y], 1),
    aten.stack.default: ([X, Y], 1),
    aten.cumsum.default: (X, 1),
    aten.gather.default: (X, 1, torch.tensor([[2], [0], [1]])),
    aten.permute.default: (X, [1, 0]),
    aten.unsqueeze.default: (X, 1),
    aten.as_strided_scatter.default: (X, V, [3], [2], 1),
    aten.expand.default: (V, [2, 3]),
    aten.view.default: (X, [9]),
    aten.mean.dim: (X, [1], True),
    aten.pow.Tensor_Scalar: (X, 3),
    aten.select.int: (X, 1, 2),
    aten.squeeze.dim: (V[None], 0),
    aten.sum.dim_IntList: (X, [0], True),
    aten.transpose.int: (X, 0, 1),
    aten.unbind.int: (X, 1),
    aten.where.self: (X > 1, X, Y),
}


def copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)


@pytest.mark.parametrize("func", BINDINGS, ids=str)
def test_it_is_the_same_operator(func: Any) -> None:
    args = ARGUMENTS.get(func, (X,))
    expected, got = func(*copied(args)), BINDINGS[func](*copied(args))
    assert type(got) in (type(expected), tuple)
    for x, y in zip(*[[r] if isinstance(r, torch.Tensor) else r for r in (expected, got)], strict=True):
        if "empty" not in str(func):
            assert torch.equal(x, y)
        assert (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)


def test_a_scatter_into_what_requires_grad_and_is_not_packed() -> None:
    view = torch.rand(3, 3, requires_grad=True).t()
    with torch.no_grad():
        got = binding_of(aten.as_strided_scatter.default)(view, V, [3], [2], 1)
    assert torch.equal(got, aten.as_strided_scatter.default(view.detach(), V, [3], [2], 1))


def test_other_operators() -> None:
    assert torch.equal(binding_of(aten.atan2.default)(X, Y), torch.atan2(X, Y))
    assert binding_of(len) is len
