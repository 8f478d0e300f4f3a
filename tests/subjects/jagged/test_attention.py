"""Attention of padded tensors gives each row what attention of that row alone gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.subjects.jagged.attention import JaggedAttention


def jagged(*lengths: int, shape: tuple[int, ...] = (4,)) -> Any:
    return torch.nested.nested_tensor([torch.rand(n, *shape) for n in lengths], layout=torch.jagged)


@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_of_padded_tensors_is_attention_of_each_row(scale: float | None) -> None:
    q, k = (jagged(*lengths, shape=(2, 4)).transpose(1, 2) for lengths in ((2, 3), (4, 1)))
    attention = torch.nn.functional.scaled_dot_product_attention
    with JaggedAttention():
        found = attention(q, k, k, scale=scale)
    rows = [attention(a[None], b[None], b[None], scale=scale)[0] for a, b in zip(q.unbind(), k.unbind(), strict=True)]
    for row, expected in zip(found.unbind(), rows, strict=True):
        torch.testing.assert_close(row, expected)
