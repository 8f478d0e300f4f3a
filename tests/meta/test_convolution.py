"""Convolutions: strides of results and gradients, as the kernels have them."""

from __future__ import annotations

import pytest
import torch

from tests.meta.nodes import wrong_nodes


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("kernel", [1, 3])
def test_in_channels_last(channels: int, kernel: int) -> None:
    x = torch.randn(2, channels, 6, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(3, channels, kernel, kernel).contiguous(memory_format=torch.channels_last).requires_grad_()
    assert not wrong_nodes(torch.nn.functional.conv2d, [x, weight])
