"""Convolutions: strides of results and gradients, as the kernels have them."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot import aot_compile
from tests.meta.nodes import wrong_nodes


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("kernel", [1, 3])
def test_in_channels_last(channels: int, kernel: int) -> None:
    x = torch.randn(2, channels, 6, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(3, channels, kernel, kernel).contiguous(memory_format=torch.channels_last).requires_grad_()
    assert not wrong_nodes(torch.nn.functional.conv2d, [x, weight])


def _of(x: tuple[int, ...], weight: tuple[int, ...], **options: Any) -> tuple[Any, ...]:
    transposed = options.pop("transposed", False)
    names = {False: ("conv1d", "conv2d", "conv3d"), True: ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")}
    function = getattr(torch.nn.functional, names[transposed][len(x) - 3])
    return functools.partial(function, **options), torch.rand(x), torch.rand(weight)


WRONG = {
    "channels, transposed": lambda: _of((2, 3, 2, 3), (2, 3, 2, 3), transposed=True),
    "channels, transposed, 1D": lambda: _of((2, 3, 4), (2, 3, 2), transposed=True),
    "channels, transposed, 3D": lambda: _of((2, 3, 4, 4, 4), (2, 3, 2, 2, 2), transposed=True),
    "bias": lambda: _of((2, 3, 4, 4), (4, 3, 2, 2), bias=torch.rand(5)),
    "bias, transposed": lambda: _of((2, 3, 2, 3), (3, 4, 2, 2), bias=torch.rand(5), transposed=True),
    "groups": lambda: _of((2, 4, 4, 4), (3, 2, 2, 2), groups=2),
    "groups, transposed": lambda: _of((2, 3, 2, 3), (3, 4, 2, 2), groups=2, transposed=True),
    "padding": lambda: _of((2, 3, 4, 4), (4, 3, 2, 2), padding=-1),
    "output padding": lambda: _of((2, 3, 4, 4), (3, 4, 2, 2), output_padding=1, transposed=True),
    "dilation": lambda: _of((2, 3, 4, 4), (4, 3, 2, 2), dilation=0),
    "kernel of size 0": lambda: _of((1, 1, 4, 4), (1, 1, 1, 0), padding=1),
    "kernel of size 0, 1D": lambda: _of((1, 1, 4), (1, 1, 0)),
    "kernel of size 0, 3D": lambda: _of((1, 1, 4, 4, 4), (1, 1, 0, 1, 1)),
    "no channels": lambda: _of((2, 2, 4, 4), (0, 2, 1, 1)),
    "no channels, transposed": lambda: _of((2, 0, 4, 4), (0, 2, 1, 1), transposed=True),
    "no channels, transposed, 0 results": lambda: _of((1, 4, 4, 4), (4, 0, 2, 2), transposed=True, padding=1),
    "kernel of size 0, no batch": lambda: _of((0, 1, 4), (1, 1, 0), padding=1),
    "input of size 0": lambda: _of((3, 3, 1, 0), (3, 3, 1, 1), padding=1),
    "input of size 0, 1D": lambda: _of((2, 1, 0), (4, 1, 1), padding=2),
    "input of size 0, 3D": lambda: _of((1, 2, 0, 3, 3), (1, 2, 2, 1, 1), padding=1),
    "input of size 0, transposed": lambda: _of((1, 2, 3, 0), (2, 2, 3, 2), transposed=True),
    "dtype": lambda: (lambda x, w: torch.nn.functional.conv2d(x, w.double()), *_of((2, 3, 4, 4), (4, 3, 2, 2))[1:]),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_what_kernels_refuse_is_refused_where_nobody_reads_the_result(name: str, dynamic: bool) -> None:
    function, x, weight = WRONG[name]()

    def program(x: Any, weight: Any) -> Any:
        function(x, weight)
        return x * 2

    with pytest.raises((RuntimeError, IndexError)) as expected:
        program(x, weight)
    with pytest.raises(expected.type) as found:
        aot_compile(program, dynamic=dynamic)(x, weight)
    assert str(expected.value)[:10] == str(found.value)[:10]


STEPS: dict[str, int] = {"stride": 2, "padding": 2}
STEPS_BACK = {**STEPS, "output_padding": 1}
ON_CUDA: dict[str, Any] = {
    "conv1d": (STEPS, (1, 3, 4), (12, 1, 3), (3, 3, 3), (9, 1, 3), (9, 1, 3)),
    "conv2d": (STEPS, (1, 3, 4, 4), (48, 1, 12, 3), (3, 3, 3, 3), (27, 1, 9, 3), (27, 1, 9, 3)),
    "conv_transpose1d": (STEPS_BACK, (1, 3, 4), (12, 1, 3), (3, 3, 3), (9, 1, 3), (18, 1, 3)),
    "conv_transpose2d": (STEPS_BACK, (1, 3, 4, 4), (48, 1, 12, 3), (3, 3, 3, 3), (27, 1, 9, 3), (108, 1, 18, 3)),
    "conv_transpose3d": (
        STEPS_BACK, (1, 3, 4, 4, 4), (192, 1, 48, 12, 3), (3, 3, 3, 3, 3), (81, 1, 27, 9, 3), (648, 1, 108, 18, 3),
    ),
    "conv2d of what is packed": ({}, (2, 3, 8, 8), (192, 64, 8, 1), (4, 3, 3, 3), (27, 9, 3, 1), (144, 36, 6, 1)),
    "conv2d to one channel": ({}, (2, 4, 13, 13), (676, 1, 52, 4), (1, 4, 1, 1), (4, 1, 1, 1), (169, 1, 13, 1)),
}  # fmt: skip
"""What an H100 gives: options, size and strides of the input and of the weight, and the strides of the result."""


@pytest.mark.every_case
@pytest.mark.parametrize("name", ON_CUDA)
def test_on_cuda(name: str) -> None:
    options, size, strides, weight_size, weight_strides, expected = ON_CUDA[name]
    with sa.meta("cuda"):
        x = torch.empty_strided(size, strides, requires_grad=True)
        weight = torch.empty_strided(weight_size, weight_strides, requires_grad=True)
        result = getattr(torch.nn.functional, name.split()[0])(x, weight, **options)
        of_x, of_weight = torch.autograd.grad(result, [x, weight], torch.empty_strided(result.shape, expected))
    assert (result.device.type, result.stride()) == ("cuda", expected)
    if name not in ("conv2d of what is packed", "conv2d to one channel"):  # that was not noted
        assert (of_x.stride(), of_weight.stride()) == (strides, weight_strides)


def test_float64_is_packed_on_cuda() -> None:
    with sa.meta("cuda"):
        x = torch.empty_strided((1, 3, 4, 4), (48, 1, 12, 3), dtype=torch.float64)
        result = torch.nn.functional.conv2d(x, torch.empty(2, 3, 1, 1, dtype=torch.float64))
    assert result.is_contiguous()
