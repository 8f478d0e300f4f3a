"""Convolutions: strides of results and gradients, as the kernels have them."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

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
    "dtype": lambda: (lambda x, w: torch.nn.functional.conv2d(x, w.double()), *_of((2, 3, 4, 4), (4, 3, 2, 2))[1:]),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_what_kernels_refuse_is_refused_where_nobody_reads_the_result(name: str, dynamic: bool) -> None:
    function, x, weight = WRONG[name]()

    def program(x: Any, weight: Any) -> Any:
        function(x, weight)
        return x * 2

    with pytest.raises(RuntimeError) as expected:
        program(x, weight)
    with pytest.raises(RuntimeError) as found:
        aot_compile(program, dynamic=dynamic)(x, weight)
    assert str(expected.value)[:10] == str(found.value)[:10]
