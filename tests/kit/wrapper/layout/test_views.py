"""Views, against the same operator on the dense tensor that the wrapper stands for."""

from __future__ import annotations

import math
import sys
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subclass_aot import Int8Weight, Outer, WrapperTensor, aot_compile
from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper import ViewOf
from subclass_aot.kit.wrapper.layout.field_map import CannotFollow, FieldMap
from subclass_aot.kit.wrapper.layout.views import new_sizes
from subclass_aot.kit.wrapper.serve.kernels import without_kernels
from tests.kit.wrapper.classes import Scaled, scaled

aten = torch.ops.aten


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


@pytest.mark.parametrize("cls", ["broadcast", "blocks", "none"])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.expand(2, 3, 5),
        lambda x: x.expand(3, 5),
        lambda x: x.expand(4),
        lambda x: x.split([1, 1]),
        lambda x: x.split_with_sizes([5, -1], 1),
        lambda x: x.split(-1),
        lambda x: x.split(0),
        lambda x: x.select(0, 3),
        lambda x: x.unbind(2),
        lambda x: x.view(5, -1),
        lambda x: x[:0].view(-1, 0),
        lambda x: aten.slice.Tensor(x, 0, 0, 2, 0),
        lambda x: aten.slice.Tensor(x, 5, 0, 2),
    ],
)
def test_what_no_dense_tensor_has_is_refused(view: Any, cls: str) -> None:
    class Any_(WrapperTensor, views=None if cls == "none" else cls):  # type: ignore[call-arg]
        codes: torch.Tensor

        def to_plain(self) -> torch.Tensor:
            return self.codes * 2

    x = Any_(torch.ones(3, 4))
    for tensor in (x.to_plain(), x):
        with pytest.raises((RuntimeError, IndexError)):
            view(tensor)


def test_a_view_that_changes_nothing_looks_as_its_tensor_does() -> None:
    """The rule of the class knows nothing of where in the whole a part begins."""

    class Halves(WrapperTensor, views="blocks"):
        part: torch.Tensor

        def outer_metadata(self) -> Outer:
            rows, columns = self.part.shape
            return Outer((rows, 2 * columns), None, self.part.dtype, self.part.device)

        def to_plain(self) -> torch.Tensor:
            return self.part.repeat_interleave(2, 1)

    x = Halves(torch.arange(6.0).view(3, 2))
    for view in (lambda x: x[1:].expand(2, 4), lambda x: x[1:, 2:].view(2, 2), lambda x: x[:, 2:].expand(-1, -1)):
        got, expected = view(x), view(x.to_plain())
        assert (got.stride(), got.storage_offset()) == (expected.stride(), expected.storage_offset())
        torch.testing.assert_close(got.to_plain(), expected)


MOST_FRAMES = 20


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:2],
        lambda x: x.t(),
        lambda x: x.transpose(0, 1),
        lambda x: x.unsqueeze(0),
        lambda x: x.select(0, 1),
        lambda x: x.narrow(0, 1, 2),
        lambda x: x.expand(2, 4, 6),
        lambda x: x.squeeze(0),
    ],
)
def test_a_view_takes_few_frames(view: Any) -> None:
    """How a field follows is computed once for the sizes, and not by each view for each field."""
    x = Int8Weight.from_float(torch.randn(4, 6))
    seen: list[str] = []

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call" and ("subclass_aot" in frame.f_code.co_filename or frame.f_code.co_filename[0] == "<"):
            seen.append(frame.f_code.co_qualname)

    with torch.no_grad(), without_kernels():
        view(x)
        sys.setprofile(note)
        try:
            view(x)
        finally:
            sys.setprofile(None)
    assert len(seen) - 1 <= MOST_FRAMES, seen  # without the frame of `view` itself


@pytest.mark.parametrize(
    "change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x.squeeze_(), lambda x: x.transpose_(0, 1)]
)
def test_views_in_place(change: Any) -> None:
    x = scaled()
    plain = x.to_plain()
    assert change(x) is x
    torch.testing.assert_close(x.to_plain(), change(plain))
    assert x.shape == plain.shape and x.stride() == plain.stride()


class Strict(Scaled, fallback="error"):
    """Whose operators without a rule are errors."""


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (
            lambda x: x.as_strided((12,), (1,)),
            r"as_strided\(\[12\], \[1\], None\) is not a view along the dims of \[3, 4\]",
        ),
        (lambda x: x.as_strided((3,), (5,)), r"as_strided\(\[3\], \[5\], None\) is not a view"),
        (lambda x: x.as_strided((2, 3), (4, 1), 4), ""),
        (lambda x: x.diagonal(), "No rule for aten.diagonal.default"),
        (lambda x: x.unfold(1, 2, 2), "No rule for aten.unfold.default"),
    ],
)
def test_views_that_a_field_cannot_follow_read_through_the_whole(view: Any, why: str) -> None:
    x = scaled()
    got, expected = view(x), view(x.to_plain())
    assert type(got) is (ViewOf if why else Scaled) and (got.shape, got.stride()) == (expected.shape, expected.stride())
    torch.testing.assert_close(got.to_plain(), expected)
    with pytest.raises(OperatorRuleError, match=why) if why else nullcontext():
        view(Strict(x.codes, x.scale, x.shift, x.table))


def test_bits_of_a_complex_tensor_are_a_view() -> None:
    x = Polar(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.5]))
    with torch.no_grad():
        x.imag.mul_(2)
        torch.view_as_real(x)[0, 0] = 3
    expected = torch.complex(torch.tensor([3.0, 2 * math.cos(0.5)]), torch.tensor([0.0, 4 * math.sin(0.5)]))
    torch.testing.assert_close(x.to_plain(), expected)


class Polar(WrapperTensor):
    """Complex numbers by magnitude and angle."""

    magnitude: torch.Tensor
    phase: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.magnitude, dtype=self.magnitude.dtype.to_complex())

    def to_plain(self) -> torch.Tensor:
        return torch.polar(self.magnitude, self.phase)

    def from_plain(self, plain: torch.Tensor) -> Polar:
        return Polar(plain.abs(), plain.angle())


class Rows(WrapperTensor, views="broadcast"):
    codes: torch.Tensor
    scale: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale

    def from_plain(self, plain: torch.Tensor) -> Rows:
        return Rows(plain / self.scale, self.scale)


@pytest.mark.parametrize("size", [(-1,), (12,), (2, 6), (2, 2, 3), (1, 12)])
def test_a_view_that_regroups_dims_goes_through_the_whole(size: tuple[int, ...]) -> None:
    """No field with a scale for each row has a scale for a part of a row, and of the next."""

    def program(x: Any) -> torch.Tensor:
        view = x.view(size)
        first = view * 2
        view[0].add_(1)
        return first + view + x.view(size)  # type: ignore[no-any-return]

    x = Rows(torch.randn(3, 4), torch.rand(3, 1) + 0.5)
    again, plain = x.clone(), x.to_plain().clone()
    expected = program(plain)
    for run, mine in ((program, x), (aot_compile(program), again)):
        torch.testing.assert_close(run(mine), expected)
        torch.testing.assert_close(mine.to_plain(), plain)


def test_without_to_plain_a_view_that_regroups_dims_is_refused() -> None:
    class Bare(WrapperTensor, views="broadcast"):
        codes: torch.Tensor
        scale: torch.Tensor

    why = r"dims \[3, 4\] become \[12\], and a field has \[3, 1\] there: neither whole nor broadcast"
    with pytest.raises(OperatorRuleError, match=why):
        Bare(torch.ones(3, 4), torch.ones(3, 1)).view(12)


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
        sizes = new_sizes(FieldMap("field", "broadcast", field, outer), list(new))
    except CannotFollow:
        return
    torch.testing.assert_close(tensor.view(sizes).expand(new), tensor.expand(outer).reshape(new))


class Packed(WrapperTensor, views="broadcast"):
    """Two codes in a byte, and a scale for four of them: neither field is as long as the rows are."""

    packed: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> Outer:
        rows, half = self.packed.shape
        return Outer((rows, half * 2), None, dtype=self.scale.dtype, device=self.scale.device)

    def to_plain(self) -> torch.Tensor:
        codes = torch.stack([self.packed & 15, self.packed >> 4], -1).flatten(1).to(self.scale.dtype)
        return (codes.unflatten(1, (-1, 4)) * self.scale[..., None]).flatten(1)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_fields_that_do_not_line_up_are_not_viewed(view: Any) -> None:
    """Sliced with the indices of the whole, they would have other sizes, and other values."""
    x = Packed(torch.arange(6, dtype=torch.uint8).reshape(3, 2), torch.rand(3, 1))
    try:
        expected = view(x.to_plain())
    except RuntimeError:
        expected = None  # for no tensor of these strides
    got = view(x)
    for mine, theirs in zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]:
        assert type(mine) is ViewOf or mine.shape == x.shape
        torch.testing.assert_close(mine.to_plain(), theirs)


class Number(WrapperTensor, views="broadcast"):
    number: torch.Tensor


@pytest.mark.parametrize("view", [lambda x: x.expand(3), lambda x: x.view(1, 1), lambda x: x.unsqueeze(0)])
def test_a_field_without_dims_is_the_whole_of_a_tensor_without_dims(view: Any) -> None:
    got, expected = view(Number(torch.ones(()))), view(torch.ones(()))
    assert got.shape == got.number.shape == expected.shape and got.stride() == expected.stride()


def test_a_field_of_more_dims_has_no_views() -> None:
    class Groups(WrapperTensor, views="broadcast"):
        codes: torch.Tensor
        scale: torch.Tensor

    x = Groups(torch.ones(2, 4), torch.ones(2, 2, 1))
    with pytest.raises(OperatorRuleError, match=r"scale\[2, 2, 1\] does not line up with a tensor of \[2, 4\]"):
        x.t()


@pytest.mark.parametrize("view", [torch.flatten, lambda x: x.view(4, 2, 3), lambda x: x.reshape(2, 12)])
def test_strides_of_a_field_that_have_no_such_view(view: Any) -> None:
    class Nested(WrapperTensor, views="broadcast"):
        c: torch.Tensor
        s: torch.Tensor

        def to_plain(self) -> torch.Tensor:
            return self.c * self.s

    w = Nested(torch.randn(4, 6), torch.randn(6, 4).t())
    torch.testing.assert_close(view(w).to_plain(), view(w.to_plain()))
