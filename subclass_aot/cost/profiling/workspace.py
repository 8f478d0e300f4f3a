"""Memory that kernels take while they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.cost.devices import Device
from subclass_aot.cost.profiling.convolutions import BY_FORMULA, CONVOLUTIONS, workspace_of_convolution
from subclass_aot.cost.profiling.copies import copied_in_between, is_copied
from subclass_aot.cost.profiling.on_cuda import workspace_on_cuda
from subclass_aot.meta import Operation

_aten: Any = torch.ops.aten

_FACTORS = {
    _aten.mm.default: (0, 1),
    _aten.addmm.default: (1, 2),
}
"""Positions of the factors of products that go to a library for matrices."""


_OF_TORCH = frozenset({"aten", "prims", "prim", "profiler", "inductor", "subclass_aot", "fsdp"})
_OF_TORCH |= frozenset(_torch.collectives.COLLECTIVES)
_OF_LIBRARY = "its kernel is not torch's, and may take more while it runs"


def workspace_of(operation: Operation, gpu: Device | None = None) -> tuple[int, str]:
    """Returns the bytes that a kernel takes while it runs, beside its results, and what that figure rests on: nothing
    where it is exact.

    On a CPU, a factor that neither has contiguous rows nor contiguous columns is copied for the library that
    multiplies matrices; an expanded gradient, as that of a sum, is one. A recurrent layer packs its weights, and has
    the gates of all words at once. What is summed up in another dtype is converted before, as a mask that is counted.
    For convolutions, see `convolutions.py`.

    Args:
        operation: Any operator that has run.
        gpu: The device, of tensors on CUDA.
    """
    func = operation.func
    on_cuda = None if gpu is None else workspace_on_cuda(operation, gpu)
    if on_cuda is not None:
        return on_cuda
    if func in CONVOLUTIONS:
        return workspace_of_convolution(operation)
    if func in _RECURRENT:
        return _of_recurrent(operation), BY_FORMULA
    if func.overloadpacket in _OF_CUDNN:
        return 0, _OF_CUDNN[func.overloadpacket]
    if func.namespace not in _OF_TORCH:
        return 0, _OF_LIBRARY
    of_kernel = _OF_KERNELS.get(func.overloadpacket)
    if of_kernel is not None:
        x = operation.args[0]
        return (of_kernel(operation, x) if x.device.type == "cpu" else 0), ""
    factors = [operation.args[i] for i in _FACTORS.get(func, ())]
    return sum(x.nbytes for x in factors if x.device.type == "cpu" and is_copied(x)), ""


def _converted(operation: Operation, x: torch.Tensor) -> int:
    """Returns the bytes of a tensor in the dtype of the result; means of short numbers are taken in float32."""
    dtype = operation.result.dtype
    if operation.func.overloadpacket is _aten.mean and dtype.itemsize < 4:
        dtype = torch.float32
    return 0 if dtype is x.dtype else x.numel() * dtype.itemsize


def _as_flags(operation: Operation, x: torch.Tensor) -> int:
    return 0 if x.dtype is torch.bool else x.numel()


def _packed(*places: int) -> Callable[[Operation, Any], int]:
    """Returns what gives the bytes of the copies of arguments that are not packed."""
    return lambda operation, _: sum(operation.args[i].nbytes for i in places if not operation.args[i].is_contiguous())


def _of_safe_softmax(operation: Operation, x: torch.Tensor) -> int:
    """Returns the bytes of the flags that say which rows are all -inf, and of the zero that is written there."""
    flags = x.numel() if x.dim() else 0
    return int(flags + flags // max(x.shape[operation.args[1]], 1) + x.dtype.itemsize)


def _of_bags(operation: Operation, weight: torch.Tensor) -> int:
    """Returns the bytes of a running sum over words, in which the bag of each is found before bags are measured."""
    _, of_words, *later = operation.result
    return int(max(of_words.nbytes - sum(each.nbytes for each in later), 0))


def _of_gradient_of_bags(operation: Operation, gradient: torch.Tensor) -> int:
    """Returns the bytes of words in order, their places, and how often each is there; of the largest, only these."""
    words, mode, largest = operation.args[1], operation.args[8], operation.args[5]
    if mode == 2:
        return int(gradient.nbytes + largest.nbytes)
    return int((4 if mode == 0 else 3) * words.nbytes)


_OF_KERNELS: dict[Any, Callable[[Operation, Any], int]] = {
    **{
        getattr(_aten, name): _converted
        for name in ("sum", "mean", "prod", "nansum", "cumsum", "cumprod", "linalg_vector_norm")
    },
    _aten.all: _as_flags,
    _aten.any: _as_flags,
    _aten.roll: copied_in_between,
    _aten._embedding_bag: _of_bags,
    _aten._embedding_bag_backward: _of_gradient_of_bags,
    _aten._safe_softmax: _of_safe_softmax,
    _aten.logsumexp: lambda operation, x: x.nbytes,
    _aten.native_layer_norm: _packed(0),
    _aten.native_layer_norm_backward: _packed(0, 1),
}
"""What kernels on a CPU copy of their arguments, of which the first is a tensor."""

_OF_CUDNN = {
    _aten._cudnn_rnn: "cuDNN, and the reserve that it keeps for backward",
    _aten._cudnn_rnn_backward: "cuDNN",
}


def kept_by_recurrent(operation: Operation) -> int | None:
    """Returns the bytes of the workspace that oneDNN keeps for the backward of an LSTM in float32; None for all else.

    Its shape rule does not know them. The formula was found from the sizes that oneDNN of torch 2.13 gave on one
    CPU with AVX2: states and their gradients of all words and one more, gates, and results, each in whole pages.

    Args:
        operation: Any operator that has run.
    """
    if operation.func is not _aten.mkldnn_rnn_layer.default or operation.args[0].dtype is not torch.float32:
        return None
    words, batch, given = operation.args[0].shape
    hidden = operation.args[2].shape[1]
    widest = 2 * (words + 1) * _padded(max(given, hidden))
    states = 2 * (words + 1) * hidden
    parts = [words * _padded(4 * hidden), widest, widest, widest, states, states, words * _padded(hidden)]
    return sum(_in_pages(batch * part) for part in parts)


_RECURRENT = frozenset(
    getattr(_aten, name).default for name in ("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward") if hasattr(_aten, name)
)


def _of_recurrent(operation: Operation) -> int:
    """Returns what an LSTM in float32 takes: packed weights, sums of biases, gates of all words, two states, a page."""
    x, first, second = operation.args[:3]
    if x.dtype is not torch.float32 or first.dim() != 2:
        return 0
    words, batch, given = x.shape
    hidden = second.shape[1]
    gates = _padded(4 * hidden)
    scratch = _in_pages(words * batch * gates) + 2 * _in_pages(batch * _padded(hidden)) + 4096 + 568
    taken = scratch + 4 * ((given + hidden) * gates + 4 * hidden)
    if operation.func is not _aten.mkldnn_rnn_layer.default:
        taken += 16 * sum(hidden * _padded(n) for n in (given, hidden) if _padded(n) != n)
        of_results = zip(operation.args[10:13], operation.args[7:10], strict=True)
        taken += sum(y.nbytes for gradient, y in of_results if gradient is None or not gradient.is_contiguous())
    return int(taken)


def _in_pages(numbers: int) -> int:
    """Returns the bytes of numbers of float32 in whole pages."""
    return -(-4 * int(numbers) // 4096) * 4096


def _padded(columns: int) -> int:
    """Returns the columns with which oneDNN stores a matrix in float32: whole cache lines, and no power of two."""
    columns = -(-columns // 16) * 16
    return columns + 16 if columns % 256 == 0 else columns
