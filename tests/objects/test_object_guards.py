"""The part of a guard that compares objects."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile


@pytest.mark.parametrize("count", [3, 30])
def test_a_long_dict_may_have_a_tensor_for_a_key(count: int) -> None:
    """A long dict of Python values is compared at once, but not where a key is an input of the graph."""
    key = torch.rand(2)
    holder = types.SimpleNamespace(table={key: 1, **{str(i): i for i in range(count)}})
    compiled = aot_compile(lambda x, holder: x * len(holder.table))
    x: Any = torch.rand(2)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, holder), x * (count + 1))
    assert not compiled.recompiles
    holder.table["0"] = 5
    compiled(x, holder)
    assert len(compiled.recompiles) == 1
