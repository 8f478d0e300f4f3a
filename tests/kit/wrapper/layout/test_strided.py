"""`as_strided` on a field, against the same on the dense tensor that the wrapper stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subclass_aot import WrapperTensor
from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper.layout.field_map import CannotFollow, FieldMap
from subclass_aot.kit.wrapper.layout.strided import as_strided_field
from tests.kit.wrapper.classes import scaled


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


def test_a_field_that_is_broadcast_stays_so() -> None:
    wrapper, field = torch.zeros(3, 4), torch.arange(3.0).view(3, 1)
    part = as_strided_field(wrapper, FieldMap("scale", "broadcast", (3, 1), (3, 4)), field, (2, 2), (4, 1), 5)
    assert part.shape == (2, 1) and part.flatten().tolist() == [1, 2]


@pytest.mark.parametrize(("size", "stride", "offset"), [((12,), (1,), None), ((2, 4), (4, 1), 6), ((3,), (5,), 0)])
def test_a_step_that_is_not_one_along_a_dim_cannot_be_followed(size: Any, stride: Any, offset: Any) -> None:
    with pytest.raises(CannotFollow, match=r"is not a view along the dims of \[3, 4\]"):
        field_map = FieldMap("scale", "broadcast", (3, 1), (3, 4))
        as_strided_field(torch.zeros(3, 4), field_map, torch.zeros(3, 1), size, stride, offset)


class Silent(WrapperTensor):
    """It says nothing of views."""

    part: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return 2 * self.part

    def from_plain(self, plain: torch.Tensor) -> Silent:
        return Silent(plain / 2)


class Scaled(WrapperTensor, views="broadcast"):
    codes: torch.Tensor
    scale: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale

    def from_plain(self, plain: torch.Tensor) -> Scaled:
        return Scaled(plain, torch.ones_like(self.scale))


WAYS: list[Any] = [
    lambda x: x[1:],
    lambda x: x[:, 2:],
    lambda x: x.t(),
    lambda x: x[:, ::2],
    lambda x: x.detach(),
    lambda x: x.unsqueeze(0).squeeze(0),
]
WHOLES: dict[str, Any] = {
    "silent": lambda: Silent(torch.arange(30.0).view(5, 6)),
    "scaled": lambda: Scaled(torch.arange(30.0).view(5, 6), torch.full((5, 1), 2.0)),
    "of a part": lambda: Silent(torch.arange(40.0).view(5, 8)[:, 1:7]),
}


@pytest.mark.parametrize("name", WHOLES)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_as_strided_of_views_counts_from_where_the_memory_begins(name: str, data: st.DataObject) -> None:
    with torch.inference_mode(data.draw(st.booleans())), torch.no_grad():
        wrapper = WHOLES[name]()
        inner = next(iter(wrapper.__dict__.values()))
        plain = torch.as_strided(torch.zeros(60), inner.shape, inner.stride(), inner.storage_offset())
        plain.copy_(wrapper.to_plain())
        view, expected = wrapper, plain
        for way in data.draw(st.lists(st.sampled_from(WAYS), max_size=3)):
            view, expected = way(view), way(expected)
        size = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=2))
        stride = data.draw(st.lists(st.integers(1, 12), min_size=len(size), max_size=len(size)))
        offset = data.draw(st.none() | st.integers(0, 30))
        try:
            view = view.as_strided(size, stride, offset)
        except OperatorRuleError as error:
            assert "it reaches elements that a tensor" in str(error)  # noqa: PT017 - nothing at all is as good
            return
        expected = expected.as_strided(size, stride, offset)
        torch.testing.assert_close(view.to_plain(), expected)
        if expected.numel() == len({n for n in expected.flatten().tolist()}):  # of what overlaps, neither is written
            view.copy_(torch.full(expected.shape, 100.0))
            expected.copy_(torch.full(expected.shape, 100.0))
            torch.testing.assert_close(wrapper.to_plain(), plain)
