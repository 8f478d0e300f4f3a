"""The fallback "each" against the operator on each inner tensor, with no wrapper in sight."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subclass_aot import WrapperTensor, aot_compile
from subclass_aot.errors import OperatorRuleError
from tests.kit.wrapper.classes import Pair, assert_pair, pair

aten = torch.ops.aten


CALLS: dict[str, Any] = {
    "two wrappers": lambda x, y: x + y,
    "keyword": lambda x, y: torch.add(x, y, alpha=3),
    "dense operand": lambda x, y: x * torch.ones(3, 4),
    "dense first": lambda x, y: torch.ones(3, 4) - x,
    "scalar": lambda x, y: x + 2.5,
    "reflected": lambda x, y: 1 / x,
    "0-dim": lambda x, y: x * torch.tensor(2.0, dtype=torch.float64),
    "compare": lambda x, y: x > y,
    "list": lambda x, y: torch.cat([x, y]),
    "mixed list": lambda x, y: torch.stack([x, torch.zeros(3, 4), y]),
    "optional in list": lambda x, y: x[torch.tensor([0, 2])],
    "where": lambda x, y: torch.where(x > 0, x, y),
    "reduce": lambda x, y: x.sum(0, keepdim=True),
    "matmul": lambda x, y: x @ y.t(),
    "dtype": lambda x, y: x.to(torch.float64),
    "view": lambda x, y: x.view(2, 6),
    "slice": lambda x, y: x[1:, ::2],
    "transpose": lambda x, y: x.t(),
    "broadcast": lambda x, y: x.expand(2, 3, 4),
    "softmax": lambda x, y: x.softmax(-1),
    "like": lambda x, y: torch.full_like(x, 3),
    "new": lambda x, y: x.new_zeros(2, 2),
    "clone": lambda x, y: x.clone(memory_format=torch.contiguous_format),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_one_output(call: Any) -> None:
    x, y = pair(3, 4), pair(3, 4, seed=1)
    assert_pair(call(x, y), call(x.left, y.left), call(x.right, y.right))
    assert_pair(call(x, y), call(x.left, y.left), call(x.right, y.right))  # by the kept plan


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.max(0),
        lambda x: x.unbind(),
        lambda x: x.split(2, 1),
        lambda x: torch.linalg.qr(x),
        lambda x: x.aminmax(),
    ],
)
def test_several_outputs(call: Any) -> None:
    x = pair(3, 4)
    for actual, left, right in zip(call(x), call(x.left), call(x.right), strict=True):
        assert_pair(actual, left, right)


def test_absent_outputs_stay_absent() -> None:
    x = pair(2, 3)
    grads = aten.native_layer_norm_backward(x, x, [3], x.sum(1, True), x.sum(1, True), None, None, [True, False, False])
    assert type(grads[0]) is Pair and grads[1:] == (None, None)


def test_in_place_returns_the_same_object_and_writes_inside() -> None:
    x, y = pair(3, 4), pair(3, 4, seed=1)
    left, expected = x.left, x.left + y.left
    assert x.add_(y) is x
    assert x.left is left
    torch.testing.assert_close(left, expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.transpose_(0, 1),
        lambda x: x.unsqueeze_(1),
        lambda x: x.squeeze_(),
        lambda x: x.squeeze_(1),
        lambda x: x.swapaxes_(0, 1),
        lambda x: x.resize_(2, 2),
        lambda x: x.resize_(5, 7),
        lambda x: x.as_strided_((2,), (2,), 1),
        lambda x: x.set_(torch.zeros(7)),
        lambda x: x.resize_as_(torch.zeros(2, 1)),
    ],
)
def test_operators_that_change_sizes_change_the_outer_ones_too(change: Any) -> None:
    x = Pair(torch.zeros(3, 1, 4)[:, 0], torch.ones(3, 4))
    reference = x.left.clone()
    assert change(x) is x
    change(reference)
    assert (x.shape, x.stride()) == (reference.shape, reference.stride())
    assert x.left.shape == x.right.shape == x.shape
    assert (x + 1).shape == x.shape


def test_set_to_another_wrapper() -> None:
    x, y = pair(3, 4), pair(5)
    x.set_(y)
    assert x.shape == (5,) and x.right.data_ptr() == y.right.data_ptr()


def test_out() -> None:
    x, y, out = pair(3, 4), pair(3, 4, seed=1), pair(3, 4, seed=2)
    left = out.left
    assert torch.add(x, y, out=out) is out
    assert out.left is left
    assert_pair(out, x.left + y.left, x.right + y.right)
    empty = Pair(torch.zeros(0), torch.zeros(0))
    torch.mul(x, y, out=empty)
    assert_pair(empty, x.left * y.left, x.right * y.right)
    values, indices = pair(0), Pair(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    returned = torch.max(x, 0, out=(values, indices))
    assert returned[0] is values and returned[1] is indices
    assert_pair(indices, x.left.max(0).indices, x.right.max(0).indices)


def test_a_write_through_a_view_reaches_the_base() -> None:
    x = pair(3, 4)
    x.t()[1].fill_(7)
    assert (x.left[:, 1] == 7).all() and (x.right[:, 1] == 7).all()


@pytest.mark.parametrize("view", [lambda x: x.detach(), lambda x: x.t(), lambda x: x.unbind()[1], lambda x: x.view(12)])
def test_views_share_the_outer_storage(view: Any) -> None:
    x = pair(3, 4)
    assert view(x).untyped_storage()._cdata == x.untyped_storage()._cdata
    assert (x + 1).untyped_storage()._cdata != x.untyped_storage()._cdata


def test_random_operators_draw_for_each_inner_tensor_in_turn() -> None:
    x = pair(3, 4)
    torch.manual_seed(0)
    drawn = torch.rand_like(x)
    torch.manual_seed(0)
    assert_pair(drawn, torch.rand(3, 4), torch.rand(3, 4))
    torch.manual_seed(0)
    x.random_(3, 9)
    torch.manual_seed(0)
    assert_pair(x, torch.empty(3, 4).random_(3, 9), torch.empty(3, 4).random_(3, 9))


def test_structures_without_schema() -> None:
    def twice(structure: Any, *, more: Any) -> Any:
        return {"sum": structure[0] + more[0], "count": len(more), "none": None}

    x = pair(2)
    result = Pair.__torch_dispatch__(twice, (Pair,), ((x, 1),), {"more": [x]})
    assert_pair(result["sum"], 2 * x.left, 2 * x.right)
    assert result["count"] == 1 and result["none"] is None


def test_nested_wrappers() -> None:
    inner = pair(3, 4)
    nested = Pair(inner, torch.zeros(3, 4))
    result = (nested + inner.left).t().sum(0)
    assert_pair(result.left, (inner.left * 2).t().sum(0), (inner.right + inner.left).t().sum(0))
    assert result.right.shape == (3,)


def test_complex_views() -> None:
    x = Pair(torch.randn(3, dtype=torch.complex64), torch.randn(3, dtype=torch.complex64))
    assert_pair(x.conj().real, x.left.real, x.right.real)
    assert_pair(x.conj() * 1, x.left.conj() * 1, x.right.conj() * 1)
    assert_pair(torch.view_as_real(x.conj()), *(torch.view_as_real(t.conj().resolve_conj()) for t in (x.left, x.right)))
    assert_pair(x.conj().imag + 0, x.left.conj().imag + 0, x.right.conj().imag + 0)
    assert not x.conj().left.is_conj()


STEPS: list[Any] = [
    lambda x: x + 1,
    lambda x: x * x,
    lambda x: x.sin(),
    lambda x: x.mul_(2),
    lambda x: x[0:1].add_(1) if x.dim() else x.add_(1),
    lambda x: x.transpose(0, -1) if x.dim() else x,
    lambda x: x.unsqueeze(0),
    lambda x: x.reshape(-1),
    lambda x: x.t_() if x.dim() == 2 else x,
    lambda x: x.flip(0) if x.dim() else x,
    lambda x: torch.cat([x, x]) if x.dim() else x,
    lambda x: x.unbind()[0] if x.dim() > 1 else x,
    lambda x: x.sum(-1) if x.dim() > 1 else x,
    lambda x: torch.clamp(x, min=-2, max=2),
    lambda x: x.clone(),
    lambda x: torch.exp(-x.abs(), out=torch.empty_like(x)),
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(range(len(STEPS))), max_size=8), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_random_programs(steps: list[int], rows: int, columns: int, inference: bool) -> None:
    base = pair(rows, columns)
    x, left, right = base, base.left.clone(), base.right.clone()
    first_left, first_right = left, right
    with torch.inference_mode(inference):
        for step in steps:
            x, left, right = STEPS[step](x), STEPS[step](left), STEPS[step](right)
            assert_pair(x, left, right)
    torch.testing.assert_close(base.left.reshape(-1), first_left.reshape(-1))
    torch.testing.assert_close(base.right.reshape(-1), first_right.reshape(-1))


def test_lists_of_other_lengths_are_refused() -> None:
    x = Pair(torch.ones(4), torch.ones(6))
    with pytest.raises(OperatorRuleError, match=r"its inner tensors have several: {'left': 2, 'right': 3}"):
        x.split(2)
    assert [part.right.shape for part in Pair(torch.ones(4), torch.ones(4, 2)).split(2)] == [(2, 2), (2, 2)]


class Scaled(WrapperTensor, fallback="each", views="broadcast"):
    """All operators but views go to both fields: the sum of two such is meant otherwise, and no matter here."""

    codes: torch.Tensor
    scale: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "view",
    [
        lambda w: w[:, 3:5],
        lambda w: w.t(),
        lambda w: w[1],
        lambda w: w.split(4, 1)[1],
        lambda w: w.unsqueeze(0),
        lambda w: w.view(4, 2, 3),
        lambda w: w.t_(),
    ],
)
def test_declared_views(view: Any, compiled: bool) -> None:
    w = Scaled(torch.randn(4, 6), torch.rand(4, 1))
    expected = view(w.to_plain())
    got = (aot_compile(view) if compiled else view)(w)
    torch.testing.assert_close(got.to_plain(), expected)
    assert type(got) is Scaled
