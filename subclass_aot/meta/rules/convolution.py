"""Layouts of convolutions: packed or channels-last, as the backend that torch selects has it.

Torch's own shape function packs what it computes on meta tensors. On CUDA cuDNN is in channels-last if the input or the
weight is, but for float64. Source: `cudnn_conv_suggest_memory_format` in ATen; the cases of the tests were compared
with an H100.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.meta import strides
from subclass_aot.meta.infer import corrects, result_device

Tensor = torch.Tensor
_aten = torch.ops.aten


@corrects(_aten.convolution.default, on_each_device=True)
def _(result: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    _check(x, weight, bias, *options)
    layout = _Layout.of(x, weight, bias, options)
    return result if layout is None else layout.of_result(result)


@corrects(_aten.convolution_backward.default, on_each_device=True)
def _(found: Any, gradient: Tensor, x: Tensor, weight: Tensor, bias_sizes: Sequence[int] | None, *options: Any) -> Any:
    of_x, of_weight, of_bias = found
    layout = _Layout.of(x, weight, bias_sizes, options[:-1])
    if layout is None:
        return of_x, of_weight, of_bias
    return (
        None if of_x is None else layout.of_gradient(of_x),
        None if of_weight is None else layout.of_weight(of_weight),
        of_bias,
    )


def _check(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> None:
    """Refuses what kernels refuse and torch's function of shapes accepts, with the errors that kernels raise.

    Source: `check_shape_forward` in ATen's `native/Convolution.cpp`.
    """
    given = f"Given {'transposed=1, ' * transposed}weight of size {list(weight.shape)}, expected"
    channels, size = (weight.shape[0], weight.shape[1] * groups) if transposed else (None, weight.shape[0])
    for name, numbers in {"padding": padding, "output_padding": output_padding}.items():
        if any(n < 0 for n in numbers):
            raise RuntimeError(f"negative {name} is not supported")
    for name, numbers in {"stride": stride, "dilation": dilation}.items():
        if any(n <= 0 for n in numbers):
            raise RuntimeError(f"non-positive {name} is not supported")
    if x.dtype is not weight.dtype:
        raise RuntimeError(f"Input type ({x.dtype}) and weight type ({weight.dtype}) should be the same")
    _check_empty(x, weight, groups)
    if weight.shape[0] % groups:
        got = f"at dimension 0, but got weight of size {list(weight.shape)} instead"
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} {got}")
    if channels is not None and x.shape[1] != channels:
        got = f"have {channels} channels, but got {x.shape[1]} channels instead"
        raise RuntimeError(f"{given} input{list(x.shape)} to {got}")
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != size):
        got = f"1-dimensional with {size} elements, but got bias of size {list(bias.shape)} instead"
        raise RuntimeError(f"{given} bias to be {got}")
    if transposed and any(n >= max(pair) for n, *pair in zip(output_padding, stride, dilation, strict=False)):
        sizes = f"output_padding {list(output_padding)}, stride {list(stride)}, dilation {list(dilation)}"
        raise RuntimeError(f"output padding must be smaller than either stride or dilation, but got {sizes}")


def _check_empty(x: Tensor, weight: Tensor, groups: int) -> None:
    """Refuses weights and inputs without elements as kernels do. Source: `select_conv_backend`, and the backends."""
    if _is_zero(weight.shape[0]):
        got = f"at dimension 0, but got weight of size {list(weight.shape)} instead"
        raise RuntimeError(f"Given groups={groups}, expected weight to be at least 1 {got}")
    if any(map(_is_zero, weight.shape)) and not _is_zero(x.shape[1]):
        if _is_zero(x.shape[0]):  # a kernel for no examples multiplies by one element of the weight
            raise IndexError("select(): index 0 out of range for tensor of size [0] at dimension 0")
        has_kernel = not any(map(_is_zero, weight.shape[2:]))
        wanted = "non-empty weight tensor expected" if has_kernel else "kernel size should be greater than zero"
        raise RuntimeError(f"{wanted}, but got: {list(weight.shape)}")
    if any(map(_is_zero, x.shape[2:])) and not any(map(_is_zero, x.shape[:2])):
        got = f"but got input shape: {list(x.shape)}"
        raise RuntimeError(f"Only zero batch or zero channel inputs are supported, {got}")


def _is_zero(number: Any) -> bool:
    """Returns whether a size is known to be zero; what a symbol is, is not assumed."""
    return type(number) is int and number == 0


class _Layout:
    """The layout of what a convolution computes.

    Some backends compute the groups one by one, choose the layout of each anew, and concatenate the results.
    """

    def __init__(self, x: Tensor, weight: Tensor, bias: object, options: Sequence[Any]) -> None:
        self.x, self.weight = x, weight
        if result_device().type != "cpu":
            self.groups, self.format = 0, _format_on_cuda(x, weight)
            return
        backend, self.format = _torch.inductor.convolution_backend(x, weight, bias, *options)
        self.groups = options[-1] if backend in _GROUP_BY_GROUP and x.dim() == 4 else 0
        if self.groups > 1:
            self.x = x.narrow(1, 0, x.shape[1] // self.groups).contiguous(memory_format=self.format)
            self.weight = weight.narrow(0, 0, weight.shape[0] // self.groups).contiguous(memory_format=self.format)
            _, self.format = _torch.inductor.convolution_backend(self.x, self.weight, None, *(*options[:-1], 1))
        elif self.groups:
            self.weight = weight.contiguous(memory_format=self.format)

    @staticmethod
    def of(x: Tensor, weight: Tensor, bias: object, options: Sequence[Any]) -> _Layout | None:
        """Returns the layout; None if it is the packed one of torch's own shape function.

        It is if nothing is channels-last, and nobody knows it of other devices than CPUs and CUDA's.
        """
        if result_device().type not in ("cpu", "cuda"):
            return None
        images = [t.unsqueeze(2) if t.dim() == 3 else t for t in (x.contiguous() if x.dim() == 3 else x, weight)]
        return _Layout(x, weight, bias, options) if any(map(_torch.inductor.looks_channels_last, images)) else None

    def of_result(self, result: Tensor) -> Tensor:
        if self.groups < 2:
            return self._as_chosen(result)
        return _joined([self._as_chosen(result.narrow(1, 0, result.shape[1] // self.groups))] * self.groups, 1)

    def of_gradient(self, gradient: Tensor) -> Tensor:
        if self.groups < 2:
            return self._as_chosen(gradient)
        return _joined([self._as_chosen(self.x)] * self.groups, 1)

    def of_weight(self, gradient: Tensor) -> Tensor:
        if not self.groups:
            return self._as_chosen(gradient)
        part = gradient.new_empty_strided(self.weight.shape, strides.preserved(self.weight))
        return _joined([part] * self.groups, 0)

    def _as_chosen(self, x: Tensor) -> Tensor:
        chosen = strides.packed if self.format is torch.contiguous_format else strides.channels_last
        return x.new_empty_strided(x.shape, chosen(x.shape))


def _format_on_cuda(x: Tensor, weight: Tensor) -> torch.memory_format:
    is_channels_last = torch.backends.cudnn.enabled and torch.float64 not in (x.dtype, weight.dtype) and x.numel() > 0
    return torch.channels_last if is_channels_last else torch.contiguous_format


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    result: Tensor = parts[0] if len(parts) == 1 else _aten.cat.default(parts, dim)
    return result


_GROUP_BY_GROUP = ("Slow2d", "SlowTranspose2d")
