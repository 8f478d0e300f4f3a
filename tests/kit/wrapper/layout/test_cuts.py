"""What views cut out, against what torch cuts out of a dense tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from subclass_aot.kit.wrapper.layout.cuts import CUTS, SEVERAL, WITHOUT_DIM, cuts_of

ARGUMENTS: dict[str, Any] = {
    "aten.slice.Tensor": lambda draw, dim, index: (dim, draw(st.none() | index), draw(st.none() | index)),
    "aten.split.Tensor": lambda draw, dim, index: (draw(index), dim),
    "aten.split_with_sizes.default": lambda draw, dim, index: (draw(st.lists(index, max_size=3)), dim),
    "aten.select.int": lambda draw, dim, index: (dim, draw(index)),
    "aten.unbind.int": lambda draw, dim, index: (dim,),
}


@pytest.mark.parametrize("func", CUTS, ids=str)
@given(data=st.data())
def test_cuts_are_those_of_torch(func: Any, data: st.DataObject) -> None:
    size = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=2))
    dim, index = data.draw(st.integers(-3, 2)), st.integers(-5, 6)
    args = ARGUMENTS[str(func)](data.draw, dim, index)
    x = torch.arange(float(torch.Size(size).numel())).reshape(size)
    try:
        made = func(x, *args)
    except (RuntimeError, IndexError):
        with pytest.raises((RuntimeError, IndexError)):
            cuts_of(func, size, args, {})
        return
    expected = made if func in SEVERAL else [made]
    cuts = cuts_of(func, size, args, {})
    for cut, part in zip(cuts, expected, strict=True):
        mine = x.narrow(cut.dim, cut.start, cut.end - cut.start)
        assert mine.squeeze(cut.dim).equal(part) if func in WITHOUT_DIM else mine.equal(part)
