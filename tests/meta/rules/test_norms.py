"""Norms: strides and dtypes of results and gradients, as the kernels have them."""

from __future__ import annotations

import pytest
import torch

import subclass_aot as sa
from tests.meta.nodes import wrong_nodes


@pytest.mark.parametrize("size", [(2, 4, 5, 5), (2, 1, 5, 5), (2, 4, 1, 1)])
def test_group_norm_in_channels_last(size: tuple[int, ...]) -> None:
    x = torch.randn(size).contiguous(memory_format=torch.channels_last).requires_grad_()
    assert not wrong_nodes(torch.nn.functional.group_norm, [x, 1])


@pytest.mark.parametrize(
    ("size", "strides", "of_gradient"),
    [
        ((5, 5, 5), (25, 1, 5), (25, 5, 1)),
        ((5, 5, 5), (1, 5, 25), (25, 5, 1)),
        ((2, 3, 4, 4), (48, 1, 12, 3), (48, 1, 12, 3)),
    ],
)
def test_batch_norm_on_cuda(size: tuple[int, ...], strides: tuple[int, ...], of_gradient: tuple[int, ...]) -> None:
    """On an H100 the result is laid out as the input, and its gradient has the suggested memory format."""
    aten = torch.ops.aten
    with sa.meta("cuda"):
        x = torch.empty_strided(size, strides)
        each = torch.empty(size[1])
        result, *_ = aten.native_batch_norm(x, each, each, each, each, True, 0.1, 1e-5)
        of_x, *_ = aten.native_batch_norm_backward(x, x, each, each, each, each, each, True, 1e-5, [True, True, True])
    assert (result.stride(), of_x.stride()) == (strides, of_gradient)
