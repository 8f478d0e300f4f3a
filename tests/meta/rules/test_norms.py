"""Norms: strides and dtypes of results and gradients, as the kernels have them."""

from __future__ import annotations

import pytest
import torch

from tests.meta.nodes import wrong_nodes


@pytest.mark.parametrize("size", [(2, 4, 5, 5), (2, 1, 5, 5), (2, 4, 1, 1)])
def test_group_norm_in_channels_last(size: tuple[int, ...]) -> None:
    x = torch.randn(size).contiguous(memory_format=torch.channels_last).requires_grad_()
    assert not wrong_nodes(torch.nn.functional.group_norm, [x, 1])
