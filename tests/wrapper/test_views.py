"""View recipes and built-in rules, against the same operator on the dense tensor that the wrapper stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subclass_aot.errors import OperatorRuleError
from subclass_aot.wrapper import Outer, WrapperTensor
from subclass_aot.wrapper.views import CannotFollow, _new_sizes

aten = torch.ops.aten


class Scaled(WrapperTensor, views={"table": "keep"}):
    """Stands for `table[codes] * scale + shift`."""

    codes: torch.Tensor
    scale: torch.Tensor
    shift: torch.Tensor
    table: torch.Tensor

    def outer(self) -> Outer:
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.table[self.codes] * self.scale + self.shift


def scaled(*size: int, scale: tuple[int, ...] = (3, 1)) -> Scaled:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 5, size or (3, 4), generator=generator)
    return Scaled(codes, torch.rand(scale, generator=generator), torch.tensor(0.5), torch.rand(5, generator=generator))


VIEWS: dict[str, Any] = {
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(-1, 0),
    "permute": lambda x: x.permute(1, 0),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "squeeze nothing": lambda x: x.squeeze(),
    "squeeze a dim that is not 1": lambda x: x.squeeze(1),
    "squeeze": lambda x: x[1:2].squeeze(0),
    "squeeze dims": lambda x: x[1:2, :1].squeeze((0, 1)),
    "select rows": lambda x: x[1],
    "select columns": lambda x: x[:, -1],
    "slice": lambda x: x[1:, ::2],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "expand": lambda x: x.expand(2, 3, 4),
    "split": lambda x: x.split(3, 1),
    "split sizes": lambda x: x.split([1, 2]),
    "chunk": lambda x: x.chunk(2, -1),
    "unbind": lambda x: x.unbind(),
    "unbind columns": lambda x: x.unbind(1),
    "view": lambda x: x.view(3, 2, 2),
    "view with unknown": lambda x: x.view(1, 3, -1),
    "view of whole": lambda x: x.view(3, 4),
    "reshape of a transpose": lambda x: x.t().reshape(2, 2, 3),
    "movedim": lambda x: x.movedim(0, 1),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "as_strided of the same": lambda x: x.as_strided((3, 4), (4, 1)),
    "as_strided of a transpose": lambda x: x.as_strided((4, 3), (1, 4)),
    "as_strided of a slice": lambda x: x.as_strided((2, 2), (4, 2), 5),
    "as_strided of a column": lambda x: x[:, 1:].as_strided((2,), (4,), 6),
    "as_strided with new dims": lambda x: x.as_strided((1, 4, 2, 3), (7, 1, 0, 4)),
    "detach": lambda x: x.detach(),
    "alias": lambda x: aten.alias.default(x),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views_follow_the_plain_tensor(view: Any, inference: bool) -> None:
    x = scaled()
    with torch.inference_mode(inference):
        actual, expected = view(x), view(x.to_plain())
        if not isinstance(expected, tuple):
            actual, expected = (actual,), (expected,)
        for mine, theirs in zip(actual, expected, strict=True):
            assert type(mine) is Scaled and mine.shape == theirs.shape
            torch.testing.assert_close(mine.to_plain(), theirs)
            assert mine.untyped_storage()._cdata == x.untyped_storage()._cdata
            assert mine.codes.untyped_storage()._cdata == x.codes.untyped_storage()._cdata
            assert mine.scale.untyped_storage()._cdata == x.scale.untyped_storage()._cdata


@pytest.mark.parametrize(
    "change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x.squeeze_(), lambda x: x.transpose_(0, 1)]
)
def test_views_in_place(change: Any) -> None:
    x = scaled()
    plain = x.to_plain()
    assert change(x) is x
    torch.testing.assert_close(x.to_plain(), change(plain))
    assert x.shape == plain.shape and x.stride() == plain.stride()


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (
            lambda x: x.view(12),
            r"dims \[3, 4\] become \[12\], and a field has \[3, 1\] there: neither whole nor broadcast",
        ),
        (
            lambda x: x.as_strided((12,), (1,)),
            r"as_strided\(\[12\], \[1\], None\) is not a view along the dims of \[3, 4\]",
        ),
        (lambda x: x.as_strided((3,), (5,)), r"as_strided\(\[3\], \[5\], None\) is not a view"),
        (lambda x: x.as_strided((2, 4), (4, 1), 6), "is not a view"),
        (lambda x: x.diagonal(), "it is a view, and a view of the dense copy"),
    ],
)
def test_views_that_a_field_cannot_follow(view: Any, why: str) -> None:
    with pytest.raises(OperatorRuleError, match=why):
        view(scaled())


def test_without_recipe_only_views_that_change_nothing() -> None:
    class Bare(WrapperTensor):
        payload: torch.Tensor

    x = Bare(torch.zeros(3, 4))
    assert type(x.view(3, 4)) is Bare and type(x.expand(3, 4)) is Bare
    with pytest.raises(OperatorRuleError, match='Bare declares no views="broadcast"'):
        x.view(12)


@settings(deadline=None)
@given(st.data())
def test_new_sizes_agree_with_broadcasting(data: st.DataObject) -> None:
    """A field that follows, broadcast to the new outer size, is what the broadcast field would have become."""
    new = data.draw(st.lists(st.sampled_from([1, 2, 3]), max_size=4))
    groups, outer = list(new), []
    while groups:
        count = data.draw(st.integers(1, len(groups)))
        outer.append(int(torch.Size(groups[:count]).numel()))
        groups = groups[count:]
    if data.draw(st.booleans()):
        outer, new = new, outer
    field = [data.draw(st.sampled_from([size, 1])) for size in outer]
    tensor = torch.arange(torch.Size(field).numel()).view(field)
    try:
        sizes = _new_sizes(outer, field, list(new))
    except CannotFollow:
        return
    torch.testing.assert_close(tensor.view(sizes).expand(new), tensor.expand(outer).reshape(new))


@settings(deadline=None)
@given(st.data())
def test_as_strided_is_the_view_it_was_computed_from(data: st.DataObject) -> None:
    """The sizes, strides and offset that a chain of views gives a dense tensor, asked of the wrapper."""
    x = scaled(4, 6, scale=data.draw(st.sampled_from([(4, 1), (1, 6), (4, 6), (1, 1)])))
    view = plain = x.to_plain()
    for _ in range(data.draw(st.integers(0, 4))):
        dim = data.draw(st.integers(0, view.dim() - 1)) if view.dim() else 0
        kind = data.draw(st.sampled_from(["slice", "select", "transpose", "unsqueeze", "expand"]))
        if kind == "slice" and view.dim():
            start = data.draw(st.integers(0, view.shape[dim] - 1))
            view = view.movedim(dim, 0)[start :: data.draw(st.integers(1, 3))].movedim(0, dim)
        elif kind == "select" and view.dim():
            view = view.select(dim, data.draw(st.integers(0, view.shape[dim] - 1)))
        elif kind == "transpose" and view.dim():
            view = view.transpose(0, dim)
        elif kind == "unsqueeze":
            view = view.unsqueeze(dim)
        else:
            view = view.expand(2, *view.shape)
    asked = (view.shape, view.stride(), view.storage_offset())
    torch.testing.assert_close(x.as_strided(*asked).to_plain(), plain.as_strided(*asked))


class Rounded(WrapperTensor, views="broadcast"):
    """Stands for its codes, which are whole numbers of `step`."""

    codes: torch.Tensor
    step: torch.Tensor

    def outer(self) -> Outer:
        return Outer.like(self.codes, dtype=self.step.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.step

    def from_plain(self, plain: torch.Tensor) -> Rounded:
        return Rounded((plain / self.step).round().to(self.codes.dtype), self.step)


def rounded() -> Rounded:
    return Rounded(torch.arange(6).view(2, 3), torch.full((1, 1), 0.5))


def test_operators_without_rule_run_on_the_plain_tensor() -> None:
    x = rounded()
    plain = x.to_plain()
    torch.testing.assert_close(x + 1, plain + 1)
    torch.testing.assert_close(torch.cat([x, torch.ones(1, 3)]), torch.cat([plain, torch.ones(1, 3)]))
    torch.testing.assert_close(torch.addmm(x, x, input_ := torch.ones(3, 3)), torch.addmm(plain, plain, input_))
    assert torch.zeros(2, 3).add_(x).sum() == plain.sum()
    assert torch.add(x, x, out=torch.empty(2, 3)).sum() == 2 * plain.sum()
    assert torch.zeros(2, 3).copy_(x).sum() == plain.sum()


def test_writes_go_through_from_plain() -> None:
    x = rounded()
    codes = x.codes
    assert x.mul_(3) is x and x.codes is codes
    assert codes.tolist() == [[0, 3, 6], [9, 12, 15]]
    x.copy_(torch.full((3,), 2.0))
    assert codes.tolist() == [[4, 4, 4], [4, 4, 4]]
    x.copy_(rounded())
    assert codes.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert torch.add(torch.ones(2, 3), 1, out=x) is x
    assert codes.tolist() == [[4, 4, 4], [4, 4, 4]]
    x[0].fill_(1)
    assert codes.tolist() == [[2, 2, 2], [4, 4, 4]]


def test_writes_without_from_plain() -> None:
    with pytest.raises(OperatorRuleError, match="it writes to `self`, and Scaled has no from_plain"):
        scaled().mul_(2)
    with pytest.raises(OperatorRuleError, match="Scaled has no method from_plain"):
        scaled().copy_(torch.zeros(3, 4))
    with pytest.raises(OperatorRuleError, match="it writes to a list of wrappers"):
        torch._foreach_add_([scaled()], 1)
    with pytest.raises(OperatorRuleError, match="it changes the sizes or strides"):
        scaled().resize_(2)


def test_copy_field_by_field_needs_fields_that_fit() -> None:
    x, y = scaled(), scaled()
    y.codes.zero_()
    x.copy_(y)
    assert not x.codes.any()
    with pytest.raises(OperatorRuleError, match="do not fit into"):
        x.copy_(scaled(scale=(1, 4)))


def test_moving_and_converting() -> None:
    x = scaled()
    half = x.to(torch.bfloat16)
    assert (half.dtype, half.codes.dtype, half.scale.dtype) == (torch.bfloat16, torch.int64, torch.bfloat16)
    assert x.to("meta").table.device.type == "meta" and x.to("meta").device.type == "meta"
    assert type(x.clone()) is Scaled and x.clone().codes is not x.codes
    assert x.to(torch.int32).dtype == torch.int32 and type(x.to(torch.int32)) is torch.Tensor

    class Fixed(WrapperTensor):
        codes: torch.Tensor

        def outer(self) -> Outer:
            return Outer.like(self.codes, dtype=torch.float32)

    with pytest.raises(OperatorRuleError, match=r"no field has the outer dtype torch\.float32"):
        Fixed(torch.zeros(2, dtype=torch.int8)).to(torch.float64)
    with pytest.raises(OperatorRuleError, match="needs a to_plain method"):
        Fixed(torch.zeros(2, dtype=torch.int8)).to(torch.int64)


def test_making_room() -> None:
    x = Rounded(torch.ones(2, 3, dtype=torch.int8), torch.ones(2, 1))
    assert type(torch.zeros_like(x)) is Rounded and not torch.zeros_like(x).to_plain().any()
    assert type(torch.empty_like(x)) is Rounded and torch.empty_like(x).shape == (2, 3)
    new = x.new_zeros(5, 7)
    assert type(new) is Rounded and (new.codes.shape, new.step.shape) == ((5, 7), (5, 1))
    assert x.new_empty((2, 3), dtype=torch.float64).dtype == torch.float64
    assert type(x.new_empty_strided((2, 3), (3, 1))) is Rounded
    with pytest.raises(OperatorRuleError, match="it cannot tell"):
        x.new_zeros(5)
    with pytest.raises(OperatorRuleError, match="strides"):
        x.new_empty_strided((2, 3), (1, 2))


def test_fallback_error_keeps_to_plain_for_the_author() -> None:
    class Strict(WrapperTensor, fallback="error"):
        payload: torch.Tensor

        def to_plain(self) -> torch.Tensor:
            return self.payload

    with pytest.raises(OperatorRuleError, match="No rule"):
        Strict(torch.zeros(2)) + 1
