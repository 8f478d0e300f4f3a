"""Which inner tensors have the rows of a wrapper."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import Int8Weight, TwoTensor, WrapperTensor
from subclass_aot.wrapper.layout.rows import is_kept, rows_of
from subclass_aot.wrapper.layout.strided import CannotFollow
from tests.wrapper.classes import scaled


@pytest.mark.parametrize(
    ("scale", "rows"), [((3, 1), 1), ((3, 4), 1), ((1, 4), 0), ((1, 1), 0), ((4,), 0), ((1,), 0), ((), 0)]
)
def test_a_field_has_the_rows_or_all_share_it(scale: tuple[int, ...], rows: int) -> None:
    x = scaled(scale=scale)
    assert [rows_of(x, name) for name in ("codes", "scale", "shift", "table")] == [1, rows, 0, 0]


def test_what_is_kept_is_shared_whatever_its_size() -> None:
    x = scaled()
    x.table = torch.rand(3, 7)  # as many rows as the tensor has, by chance
    assert rows_of(x, "table") == 0 and is_kept(x, "table") and not is_kept(x, "codes")


def test_of_a_single_row_a_field_is_its_own() -> None:
    assert rows_of(scaled(1, 4, scale=(1, 4)), "scale") == 1


@pytest.mark.parametrize("cls", [TwoTensor, ForeignTwoTensor])
def test_operators_on_each_inner_tensor_cut_each(cls: Any) -> None:
    assert rows_of(cls(torch.ones(3, 2), torch.ones(3, 2)), "b") == 1


class Offsets(WrapperTensor, fallback="each"):
    content: torch.Tensor
    offsets: torch.Tensor


class Silent(WrapperTensor):
    value: torch.Tensor


@pytest.mark.parametrize(
    ("x", "name", "why"),
    [
        (Offsets(torch.ones(3), torch.ones(4)), "offsets", r"offsets\[4\] does not have the rows of a tensor of \[3\]"),
        (Offsets(torch.ones(3), torch.ones(())), "offsets", r"offsets\[\] does not have the rows"),
        (Silent(torch.ones(3)), "value", r'Silent declares no views="broadcast"'),
        (
            Int8Weight(torch.ones(4, 3, dtype=torch.int8), torch.ones(2, 3)),
            "scale",
            r"scale\[2, 3\] has neither the rows of a tensor of \[4, 3\] nor one for all of them",
        ),
        (Int8Weight(torch.ones(4, 3, dtype=torch.int8), torch.ones(4, 1, 1)), "scale", "has neither the rows"),
    ],
)
def test_another_size_is_refused(x: Any, name: str, why: str) -> None:
    with pytest.raises(CannotFollow, match=why):
        rows_of(x, name)
