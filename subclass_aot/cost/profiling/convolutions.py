"""What convolutions on a CPU take while they run.

oneDNN copies what it reads into layouts of its own, with channels in blocks, and its results back from there. Which
copies there are, and in which order they come and go, was found from what the allocator of torch 2.13 gave out on one
CPU with AVX512, where blocks have 16 channels, and on one with AVX2, where they have 8. In channels-last, only weights
are copied. The kernels of torch itself make a column of each window.
Of 200 convolutions that were drawn on AVX512, in one and two dims, in float32 and without groups, all are within 2%; in
backward, transposed ones, those by groups and with three dims take up to a third more, those in bfloat16 up to a half,
and depthwise ones with a stride more than that. On AVX2, of 40 or 50 of each kind: in one and two dims 35 of 40 are
within 1%, in channels-last 36, transposed ones 38, by groups 41 of 50, depthwise 49, in bfloat16 50, with three dims
44. The others are small, and differ by what gradients of steps take for themselves, which is 36 to 88 KiB.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.meta import Operation, Spec

_aten: Any = torch.ops.aten

BLOCK = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
"""Channels in a block: as many numbers of float32 as a register of this machine's CPU holds."""

_SCRATCH = 8216
"""Bytes that a kernel for channels-last has for itself."""

_OF_STEPS = 0 if BLOCK == 16 else (1 << 16) + _SCRATCH
"""And for gradients where it goes in steps, about: it was 36 to 88 KiB."""

CONVOLUTIONS = frozenset({_aten.convolution.default, _aten.convolution_backward.default})


def workspace_of_convolution(operation: Operation) -> tuple[int, str]:
    """Returns the most bytes that a convolution has at a time beside its results, and what that rests on.

    Args:
        operation: A convolution that has run, or its backward.
    """
    is_backward = operation.func is _aten.convolution_backward.default
    args = operation.args[1:] if is_backward else operation.args
    x, weight, bias, *options = args[:9]
    y = operation.args[0] if is_backward else operation.result
    if x.device.type == "cuda":
        return 0, _OF_CUDNN
    if x.device.type != "cpu" or x.dim() != weight.dim() or not x.numel():
        return 0, _NOT_KNOWN
    backend, layout = _backend_of(Spec.of(x), Spec.of(weight), bias is not None, tuple(map(_hashed, options)))
    kernel = _Kernel(x, weight, y, options, bias is not None)
    if backend == "Slow2d" and not kernel.transposed:
        return kernel.of_torch(operation.result if is_backward else None), ""
    if backend == "Slow3d" and kernel.groups == 1:
        reads = is_backward and operation.result[0] is not None
        return max(kernel.columns(), x.nbytes if reads else 0), ""
    if backend not in ("Mkldnn", _MKLDNN_TRANSPOSE):
        return 0, _NOT_KNOWN
    if kernel.is_product:
        return kernel.of_product(operation.result if is_backward else None), BY_FORMULA
    if layout is not torch.contiguous_format:
        return kernel.in_channels_last(operation.result if is_backward else None), BY_FORMULA
    return kernel.backward(operation.result) if is_backward else kernel.forward(), BY_FORMULA


BY_FORMULA = "oneDNN, by a formula that was found on one CPU"
_NOT_KNOWN = "nobody says it before it runs"
_OF_CUDNN = "cuDNN chooses an algorithm, and its workspace, as it runs"
_MKLDNN_TRANSPOSE = "???"
"""What torch calls a backend that its bindings have no name for."""


@functools.cache
def _backend_of(x: Spec, weight: Spec, has_bias: bool, options: tuple[Any, ...]) -> tuple[str, torch.memory_format]:
    """Returns the kernels that torch selects, and the memory format that they work in."""
    with _torch.dispatch.disable_current_modes():
        blank_x, blank_weight = (
            torch.empty_strided(t.size, t.stride, dtype=t.dtype, device="meta") for t in (x, weight)
        )
    bias = [weight.size[1] * options[-1] if options[3] else weight.size[0]] if has_bias else None
    lists: list[Any] = [list(each) if isinstance(each, tuple) else each for each in options]
    return _torch.inductor.convolution_backend(blank_x, blank_weight, bias, *lists)


def _hashed(option: Any) -> Any:
    return tuple(option) if isinstance(option, list) else option


def _up(channels: int, block: int = BLOCK) -> int:
    return -(-channels // block) * block


@dataclass
class _Kernel:
    """A convolution of a small image into a large one, or the other way round, as kernels see it.

    Attributes:
        x: What it reads.
        weight: Its weight.
        y: What it makes.
        options: Stride, padding, dilation, whether it is transposed, output padding, groups.
        has_bias: Whether something is added.
    """

    x: torch.Tensor
    weight: torch.Tensor
    y: torch.Tensor
    options: Sequence[Any]
    has_bias: bool

    @property
    def groups(self) -> int:
        """How many parts of the channels do not meet."""
        return int(self.options[-1])

    @property
    def transposed(self) -> bool:
        """Whether it is the gradient of a convolution, run forward."""
        return bool(self.options[3])

    @property
    def is_strided(self) -> bool:
        """Whether kernels of gradients work in channels-last, whose results are copied once more."""
        return not self.is_depthwise and any(step > 1 for step in self.options[0])

    @property
    def is_depthwise(self) -> bool:
        """Whether no channels meet."""
        return self.groups > 1 and self.groups == self.x.shape[1]

    @property
    def is_product(self) -> bool:
        """Whether oneDNN makes columns, and multiplies: with AVX2, where the channels of a group fill no blocks."""
        parts = self.weight.shape[0] // self.groups, self.weight.shape[1]
        return BLOCK == 8 and self.groups > 1 and not self.is_depthwise and any(n % BLOCK for n in parts)

    def of_product(self, results: Sequence[torch.Tensor | None] | None) -> int:
        """Returns what such products take beside results, which they make once, and copy.

        Args:
            results: The gradients, in backward.
        """
        taps = math.prod(self.weight.shape[2:])
        of_one = math.prod(self.y.shape[2:]) if self.x.dim() < 5 else math.prod(self.y.shape[3:])
        columns = int(self.weight.shape[1] * taps * of_one * self.x.dtype.itemsize)
        if results is None:
            return int(max(columns, self.y.nbytes))
        of_x, of_weight, of_bias = results
        moments = [0] if of_x is None else [columns, of_x.nbytes]
        if of_weight is not None:  # sums of parts of the images
            later = (0 if of_x is None else of_x.nbytes) + 5 * of_weight.nbytes + columns
            moments.append(later - sum(each.nbytes for each in results if each is not None))
        return max(moments)

    @property
    def is_read_by_gradient(self) -> bool:
        """Whether the gradient of the weight reads few channels as they are: with AVX2, those of colours alone."""
        return BLOCK == 16 or self.x.shape[1] == 3

    def columns(self) -> int:
        """Returns the bytes of all windows of all images."""
        taps = math.prod(self.weight.shape[2:])
        stride, padding = self.options[:2]
        if taps == 1 and set(stride) == {1} and set(padding) == {0}:
            return 0
        cells = self.y.shape[0] * math.prod(self.y.shape[2:])
        return int(cells * taps * self.weight.shape[1] * self.x.dtype.itemsize)

    def of_torch(self, results: Sequence[torch.Tensor | None] | None) -> int:
        """Returns what torch's own kernels take beside results, which they make group by group, and join.

        Args:
            results: The gradients, in backward.
        """
        columns = self.columns()
        if self.groups > 1:
            made, joined = self.y, (self.y if results is None else results[0])
            columns += (self.x.nbytes + (0 if results is None else made.nbytes)) // self.groups
            columns = max(columns, 0 if joined is None else joined.nbytes)
        if results is not None and results[2] is not None and self.y.dtype.itemsize < 4:  # it is summed in float32
            columns = max(columns, 4 * self.y.numel() - (0 if results[1] is None else results[1].nbytes))
        return int(columns)

    @property
    def is_blocked(self) -> bool:
        """Whether channels are copied in blocks that are not whole, too."""
        return self.groups == 1 or (BLOCK == 8 and self.is_depthwise)

    def blocked(self, image: torch.Tensor) -> int:
        """Returns the bytes of an image with channels in blocks."""
        return int(image.nbytes // image.shape[1] * (_up(image.shape[1]) if self.is_blocked else image.shape[1]))

    def read(self, image: torch.Tensor) -> int:
        """Returns the bytes of the copy of an image that is read; few channels are read as they are."""
        return self.blocked(image) if image.shape[1] >= BLOCK else 0

    def weights(self, is_read: bool) -> int:
        """Returns the bytes of a copy of the weight.

        Args:
            is_read: Whether the image that it is applied to is read as it is where it has few channels.
        """
        first, second, *taps = self.weight.shape
        if self.groups == 1:
            reads = first if self.transposed else second
            first, second = _up(first), _up(second)
            if is_read and reads < BLOCK:
                first, second = (reads, second) if self.transposed else (first, reads)
        return int(first * second * math.prod(taps) * self.weight.dtype.itemsize)

    def skipped(self) -> int:
        """Returns the bytes of what a thread copies of one image where a kernel of one pixel skips others."""
        if self.transposed or math.prod(self.weight.shape[2:]) > 1 or all(step == 1 for step in self.options[0]):
            return 0
        return int(_up(self.x.shape[1]) * (math.prod(self.y.shape[2:]) + 1) * self.x.dtype.itemsize)

    def forward(self) -> int:
        """Returns what it takes beside its result."""
        made = self.blocked(self.y)
        if not self.transposed:
            return max(self.read(self.x) + self.weights(True) + made - self.y.nbytes + self.skipped(), made)
        read = self.blocked(self.x) + self.weights(False)
        if self.is_strided:  # the result is made, and copied
            return max(read, 2 * self.y.nbytes)
        return max(read + made * (1 + self.has_bias) - self.y.nbytes, made)

    def backward(self, results: Sequence[torch.Tensor | None]) -> int:
        """Returns what its gradients take beside themselves: first that of what it reads, then that of the weight."""
        of_x, of_weight, of_bias = results
        strided = self.is_strided and not self.transposed
        moments, there = [0], 0
        if of_x is not None:
            made = of_x.nbytes if strided else self.blocked(of_x)
            scratch = _OF_STEPS if strided else 0
            moments += [self.blocked(self.y) + self.weights(False) + made + scratch, made + of_x.nbytes * (1 + strided)]
            there = of_x.nbytes
        if of_weight is not None:
            more = 0 if of_bias is None else of_bias.nbytes
            weights = self.weights(self.is_read_by_gradient)
            moments += [there + of_weight.nbytes + weights + 2 * more]
            if self.weight.dtype.itemsize < 4:  # it is summed in float32
                more += weights * 4 // self.weight.dtype.itemsize
            moments.append(there + self._copies_for_weight() + weights + more + self.skipped())
        return max(moments) - sum(each.nbytes for each in results if each is not None)

    def _copies_for_weight(self) -> int:
        """Returns the bytes of the copies of which the gradient of the weight is made."""
        channels, made = self.x.shape[1], self.y.shape[1]
        if BLOCK == 8 and self.x.dim() == 5 and any(self.options[1]):
            taps = math.prod(self.weight.shape[2:])
            return int(4 * channels * taps * math.prod(self.y.shape[3:]) + 4 * self.weight.nbytes)
        if self.is_depthwise and max(self.weight.shape[2:]) > 3:
            return 0
        if channels >= BLOCK:
            return self.blocked(self.y) + self.blocked(self.x)
        if self.weight.dtype.itemsize < 4 and made % BLOCK:
            return 0
        if BLOCK == 8:
            return self.blocked(self.y) + (0 if self.is_read_by_gradient else self.blocked(self.x))
        if channels <= 3:
            return self.blocked(self.y)
        return sum(int(t.nbytes // t.shape[1] * _up(t.shape[1], BLOCK // 2)) for t in (self.x, self.y))

    def in_channels_last(self, results: Sequence[torch.Tensor | None] | None) -> int:
        """Returns what it takes beside its results where images stay as they are.

        Args:
            results: The gradients, in backward.
        """
        made, read, *taps = self.weight.shape
        size = math.prod(taps) * self.weight.dtype.itemsize
        if self.groups > 1:
            return self.weight.nbytes * (1 if results is None else 2)
        if results is None:
            return _up(made) * read * size + _SCRATCH
        _, of_weight, of_bias = results
        first = made * _up(read) * size + _SCRATCH + (_OF_STEPS if self.is_strided else 0)
        if of_weight is None:
            return int(first)
        more = 0 if of_bias is None else of_bias.nbytes
        is_read = read < BLOCK and self.is_read_by_gradient
        copied = _up(made) * (read if is_read else _up(read)) * size
        return int(max(first - of_weight.nbytes - more, copied + of_weight.nbytes + more))
