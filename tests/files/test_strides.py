"""Strides that a file has not kept."""

from __future__ import annotations

import pytest
import torch

from subclass_aot.errors import StateDictError
from subclass_aot.files.strides import with_stride

TENSORS = {
    "contiguous": torch.rand(2, 3),
    "transposed": torch.rand(2, 3).t(),
    "gaps": torch.rand(4, 6)[::2, 1:3],
    "expanded": torch.rand(1, 3, 1).expand(2, 3, 4),
    "windows": torch.rand(7).unfold(0, 3, 2),
    "one row": torch.rand(4, 1).t(),
    "no rows": torch.rand(0, 3).t(),
    "no dims": torch.tensor(3),
    "all one": torch.ones(1).expand(2, 2),
}


@pytest.mark.parametrize("name", TENSORS)
def test_they_are_as_they_were(name: str) -> None:
    tensor = TENSORS[name]
    found = with_stride(tensor.contiguous(), tensor.stride(), "weight")
    assert found.stride() == tensor.stride() and found.equal(tensor)


def test_nothing_is_copied_where_none_is_needed() -> None:
    for tensor in (TENSORS["contiguous"], TENSORS["transposed"]):
        assert with_stride(tensor, tensor.stride(), "weight") is tensor
    row = torch.rand(1, 4)
    assert with_stride(row, (1, 1), "weight").data_ptr() == row.data_ptr()


@pytest.mark.parametrize("stride", [(1,), (-1, 1), (2**62, 1), ("a", 1)])
def test_strides_that_nothing_has(stride: tuple[int, ...]) -> None:
    with pytest.raises(StateDictError, match=r"weight\.codes "):
        with_stride(torch.ones(2, 3), stride, "weight.codes")
