"""`as_strided` on a field, against the same on the dense tensor that the wrapper stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subclass_aot.wrapper.strided import CannotFollow, as_strided_field
from tests.wrapper.classes import scaled


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
    part = as_strided_field(wrapper, field, (2, 2), (4, 1), 5)
    assert part.shape == (2, 1) and part.flatten().tolist() == [1, 2]


@pytest.mark.parametrize(("size", "stride", "offset"), [((12,), (1,), None), ((2, 4), (4, 1), 6), ((3,), (5,), 0)])
def test_a_step_that_is_not_one_along_a_dim_cannot_be_followed(size: Any, stride: Any, offset: Any) -> None:
    with pytest.raises(CannotFollow, match=r"is not a view along the dims of \[3, 4\]"):
        as_strided_field(torch.zeros(3, 4), torch.zeros(3, 1), size, stride, offset)
