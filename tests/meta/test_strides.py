"""Strides of packed tensors."""

from __future__ import annotations

import pytest
import torch

from subclass_aot.meta import strides


@pytest.mark.parametrize("size", [(2, 3, 4), (2, 1, 4), (1, 1), (3,), ()])
def test_packed(size: tuple[int, ...]) -> None:
    assert tuple(strides.packed(size)) == torch.empty(size).stride()
