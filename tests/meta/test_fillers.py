"""Operators that fill a tensor with one number: what the table has is what the operators do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.meta.fillers import FILLERS

CALLS: dict[str, Any] = {
    "new_full": lambda op, x: op(x, [2], 7),
    "full": lambda op, x: op([2], 7),
    "zeros": lambda op, x: op([2]),
    "ones": lambda op, x: op([2]),
    "new_zeros": lambda op, x: op(x, [2]),
    "new_ones": lambda op, x: op(x, [2]),
    "full_like": lambda op, x: op(x, 7),
    "fill_": lambda op, x: op(x, 7),
}


@pytest.mark.every_case
@pytest.mark.parametrize("packet", FILLERS, ids=str)
def test_the_number_is_where_the_table_has_it(packet: Any) -> None:
    name = packet.__name__
    how, number = FILLERS[packet]
    result = CALLS.get(name, lambda op, x: op(x))(packet, torch.rand(2))
    assert result.tolist() == [7 if how == "at" else number] * 2
