"""What is called in the place of an overload is the same operator: equal results on samples, as many as there are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.backends.bindings import BINDINGS, FACTORIES, binding_of

aten: Any = torch.ops.aten
X, Y, V = torch.rand(3, 3) + 0.5, torch.rand(3, 3) + 0.5, torch.rand(3)

ARGUMENTS: dict[Any, tuple[Any, ...]] = {
    **{
        getattr(getattr(aten, name), overload): (X, Y if overload == "Tensor" else 0.75)
        for name in ("add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_", "eq", "ge", "gt", "le", "lt", "ne")
        for overload in ("Tensor", "Scalar")
    },
    **{getattr(aten, name).default: (X, Y) for name in ("mm", "maximum", "minimum", "copy_")},
    aten.addmm.default: (V, X, Y),
    aten.linear.default: (X, Y, V),
    aten.bmm.default: (X[None], Y[None]),
    aten.cat.default: ([X, Y], 1),
    aten.stack.default: ([X, Y], 1),
    aten.cumsum.default: (X, 1),
    aten.gather.default: (X, 1, torch.tensor([[2], [0], [1]])),
    aten.permute.default: (X, [1, 0]),
    aten.unsqueeze.default: (X, 1),
    aten.amax.default: (X, [1], True),
    aten.bitwise_and.Tensor: (X > 1, Y > 1),
    aten.bitwise_not.default: (X > 1,),
    aten.clamp.default: (X, 0.7, None),
    aten.clamp_.default: (X, None, 1.2),
    aten.convolution.default: (X[None, None], Y[None, None, :2], None, [1, 1], [0, 1], [1, 1], False, [0, 0], 1),
    aten.embedding.default: (X, torch.tensor([2, 0]), -1, False, False),
    aten.gelu.default: (X,),
    aten.index_select.default: (X, 1, torch.tensor([2, 0])),
    aten.masked_fill.Scalar: (X, Y > 1, 2),
    aten.masked_fill.Tensor: (X, Y > 1, torch.tensor(2.0)),
    aten.native_group_norm.default: (X[None], V, V, 1, 3, 3, 1, 1e-5),
    aten.native_layer_norm.default: (X, [3], V, None, 1e-5),
    aten.repeat.default: (X, [2, 1]),
    aten.rsub.Scalar: (X, 2, 3),
    aten.split_with_sizes.default: (X, [1, 2], 1),
    aten.squeeze.dims: (X[None, :, None], [0, 2]),
    aten.var_mean.correction: (X, [1]),
    aten._softmax.default: (X, 1, False),
    aten._log_softmax.default: (X, 1, False),
    aten.as_strided_scatter.default: (X, V, [3], [2], 1),
    aten.expand.default: (V, [2, 3]),
    aten.view.default: (X, [9]),
    aten.mean.dim: (X, [1], True),
    aten.pow.Tensor_Scalar: (X, 3),
    aten.select.int: (X, 1, 2),
    aten.squeeze.dim: (V[None], 0),
    aten.sum.dim_IntList: (X, [0], True),
    aten.transpose.int: (X, 0, 1),
    aten._local_scalar_dense.default: (X[0, 0],),
    aten.unbind.int: (X, 1),
    aten.where.self: (X > 1, X, Y),
}

KEYWORDS: dict[Any, dict[str, Any]] = {
    aten.gelu.default: {"approximate": "tanh"},
    aten.var_mean.correction: {"correction": 0, "keepdim": True},
    aten.add.Tensor: {"alpha": 2},
}


def copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)


@pytest.mark.parametrize("func", BINDINGS, ids=str)
def test_it_is_the_same_operator(func: Any) -> None:
    args = ARGUMENTS.get(func, (X,))
    more = KEYWORDS.get(func, {})
    expected, got = func(*copied(args), **more), BINDINGS[func](*copied(args), **more)
    assert type(got) in (type(expected), tuple)
    if isinstance(expected, float):
        assert got == expected
        return
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


MADE: dict[Any, tuple[tuple[Any, ...], ...]] = {
    aten.arange.default: ((4,), (2.5,)),
    aten.arange.start: ((1, 4), (0.5, 2)),
    aten.arange.start_step: ((1, 9, 3), (1, 0.2, -0.25)),
    aten.empty.memory_format: (([0, 3],),),
    aten.full.default: (([2, 3], 1.5), ([], 2), ([1], True), ([2], 1 + 2j)),
    aten.ones.default: (([2, 0],), ([],)),
    aten.scalar_tensor.default: ((1.5,), (2,), (True,)),
    aten.zeros.default: (([2, 3],), ([],)),
}


@pytest.mark.parametrize("func", FACTORIES, ids=str)
@pytest.mark.parametrize("dtype", [None, torch.float64, torch.int16, torch.complex64])
def test_what_is_made_on_a_device_is_the_same(func: Any, dtype: torch.dtype | None) -> None:
    options: dict[str, Any] = {"dtype": dtype, "device": torch.device("cpu"), "pin_memory": False}
    for args in MADE[func]:
        if isinstance(args[-1], complex) and dtype is not None and not dtype.is_complex:
            continue
        if "arange" in str(func) and dtype is not None and dtype.is_complex:
            continue
        expected, got = func(*args, **options), FACTORIES[func](*args, **options)
        assert binding_of(func, options) is FACTORIES[func] and binding_of(func) is not FACTORIES[func]
        assert torch.equal(got, expected) and got.dtype is expected.dtype and got.stride() == expected.stride()
