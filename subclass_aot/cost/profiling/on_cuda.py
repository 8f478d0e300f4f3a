"""What kernels and libraries take on CUDA, beside the results.

Compared with what an H100 allocated under torch 2.11; what convolutions and recurrent layers of cuDNN take while they
run is not known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from subclass_aot.cost.devices import Device, device_of
from subclass_aot.cost.profiling.copies import copied_in_between, is_copied
from subclass_aot.cost.profiling.reductions import workspace_of_reduction
from subclass_aot.meta import Operation

_aten: Any = torch.ops.aten


def gpu_of(known: Device | None) -> Device:
    """Returns the GPU that a run is on: the one that is named, else what `torch.cuda` says, else an H100.

    In a block that claims a GPU, `torch.cuda` answers of that one.

    Args:
        known: The device that the user has named.
    """
    if known is not None and known.type == "cuda":
        return known
    if not torch.cuda.is_available():
        return device_of("H100")
    properties = torch.cuda.get_device_properties()
    capability = properties.major, properties.minor
    return replace(
        device_of("H100"),
        name=properties.name,
        capability=capability,
        multiprocessors=properties.multi_processor_count,
    )


def workspace_on_cuda(operation: Operation, gpu: Device) -> tuple[int, str] | None:
    """Returns the bytes that a kernel takes while it runs, and what that figure rests on; None where it is not known.

    Args:
        operation: An operator that has run, on tensors on CUDA.
        gpu: The device.
    """
    reduced = workspace_of_reduction(operation, gpu)
    if reduced is not None:
        return reduced, ""
    backward = _BACKWARD.get(operation.func)
    if backward is not None:
        return backward(*operation.args[:4]), ""
    packet = operation.func.overloadpacket
    for kernels, rests_on in ((_KNOWN, ""), (_SORTING, "what it sorts in, by a formula that was found on one H100")):
        if packet in kernels:
            taken = kernels[packet](operation, gpu)
            return taken, rests_on if taken else ""
    return None


def kept_by_cublas(operation: Operation, gpu: Device) -> int:
    """Returns the bytes that cuBLAS gets at its first product in a thread, and keeps.

    Source: `getChosenWorkspaceSize` in ATen's `cuda/CublasHandlePool.cpp`; an H100 does so.

    Args:
        operation: Any operator that has run.
        gpu: The device.
    """
    if operation.func.overloadpacket not in _PRODUCTS:
        return 0
    parts = re.findall(r":(\d+):(\d+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if parts:
        return sum(1024 * int(size) * int(count) for size, count in parts)
    return 1024 * (4096 * 8 if (gpu.capability or (9, 0))[0] in (9, 10) else 4096 * 2 + 16 * 8)


_PRODUCTS = frozenset(
    getattr(_aten, name) for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "_int_mm", "_scaled_mm")
)


def _cudnn_attention(grad: Any, query: Any, key: Any, value: Any) -> int:
    """Returns the bytes of the gradient of the queries in float32, of a sum for each, and of keys by head."""
    batch, heads, queries, width = query.shape
    return int(4 * batch * heads * queries * (width + 1)) + _by_head(heads, key, value)


def _flash_attention(grad: Any, query: Any, key: Any, value: Any) -> int:
    """Returns the like of the above, of whole blocks: `native/transformers/cuda/flash_attn/flash_api.cpp`."""
    batch, heads, queries, width = query.shape
    rows, columns = -(-queries // 128) * 128, -(-width // 32) * 32 if width <= 192 else 256
    return int(4 * batch * heads * rows * (columns + 1)) + _by_head(heads, key, value)


def _by_head(heads: int, *groups: Any) -> int:
    """Returns the bytes of gradients of keys and values once for each head, where heads share them."""
    return sum(int(x.numel()) // int(x.shape[1]) * heads * x.dtype.itemsize for x in groups if x.shape[1] != heads)


def _efficient_attention(grad: Any, query: Any, key: Any, value: Any) -> int:
    """Returns the bytes of the gradient of the queries in float32, of a sum for each, and of a copy of the gradient."""
    batch, heads, queries, width = query.shape
    blocks = -(-queries // 64) * 64 * -(-width // 64) * 64
    copied = 0 if grad.transpose(1, 2).is_contiguous() else grad.nbytes
    return int(4 * batch * heads * (blocks + queries + 32) + copied)


_BACKWARD: dict[Any, Callable[..., int]] = {
    _aten._scaled_dot_product_cudnn_attention_backward.default: _cudnn_attention,
    _aten._scaled_dot_product_flash_attention_backward.default: _flash_attention,
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_attention,
}


def _splits_of_flash(operation: Operation, gpu: Device) -> int:
    """Returns the bytes of results of parts of the keys, where queries are too few for all multiprocessors.

    Source: `set_params_splitkv` and `num_splits_heuristic` in the file above.
    """
    (batch, heads, queries, width), keys = operation.args[0].shape, operation.args[1].shape[2]
    dropout = operation.args[3] if len(operation.args) > 3 else operation.kwargs.get("dropout_p", 0.0)
    blocks = -(-keys // (256 if width <= 64 else 128 if width <= 128 else 64))
    tasks, places = batch * heads * -(-queries // 64), 2 * gpu.multiprocessors
    if dropout or tasks >= 0.8 * places:
        return 0
    busy = {
        n: tasks * n / places / -(-tasks * n // places)
        for n in range(1, min(128, places, blocks) + 1)
        if n == 1 or -(-blocks // n) != -(-blocks // (n - 1))
    }
    splits = next(n for n, part in busy.items() if part >= 0.85 * max(busy.values()))
    columns = -(-width // 32) * 32 if width <= 192 else 256
    return int(4 * splits * batch * heads * queries * (columns + 1)) if splits > 1 else 0


def _copied_factors(operation: Operation, gpu: Device) -> int:
    """Returns the bytes of factors that cuBLAS cannot read where they lie."""
    factors = [x for x in operation.args if isinstance(x, torch.Tensor) and x.dim() == 2][-2:]
    return sum(x.nbytes for x in factors if is_copied(x))


def _summed_rows(operation: Operation, gpu: Device) -> int:
    """Returns the bytes of positions that are sorted and, for many rows, of sums of parts of them: found on an H100."""
    grad, indices, weights = operation.args[:3]
    rows, width = int(indices.numel()), int(grad.shape[-1])
    if rows <= 3072 and operation.args[3] < 0:
        return 0
    found = min(rows, int(weights))
    return int(24.8 * rows + 24 * found + 4 * width * (rows // 10 + found))


def _put(operation: Operation, gpu: Device) -> int:
    """Returns the bytes of positions that are sorted, where what is put there is added up."""
    is_added = operation.args[3] if len(operation.args) > 3 else operation.kwargs.get("accumulate", False)
    rows = max((int(x.numel()) for x in operation.args[1] if x is not None), default=0)
    return (32 * rows + (16 * rows if rows > 2048 else 0)) if is_added else 0


def _sorted(operation: Operation, gpu: Device) -> int:
    """Returns the bytes in which parts are sorted: found on an H100."""
    x = operation.args[0]
    dims = [a for a in operation.args[1:] if type(a) is int]
    along = int(x.shape[dims[0] if dims else operation.kwargs.get("dim", -1)]) if x.dim() else 1
    if along <= 4096:
        return 0
    return int(x.numel()) * (32 if x.numel() > along else 16 + x.dtype.itemsize)


_KNOWN: dict[Any, Callable[[Operation, Device], int]] = {
    _aten._scaled_dot_product_flash_attention: _splits_of_flash,
    _aten.mm: _copied_factors,
    _aten.addmm: _copied_factors,
    _aten.roll: lambda operation, gpu: copied_in_between(operation, operation.args[0]),
    _aten._softmax_backward_data: lambda operation, gpu: operation.args[0].nbytes,
}
_SORTING: dict[Any, Callable[[Operation, Device], int]] = {
    _aten.embedding_dense_backward: _summed_rows,
    _aten.index_put: _put,
    _aten.index_put_: _put,
    _aten._index_put_impl_: _put,
    _aten._unsafe_index_put: _put,
    _aten.sort: _sorted,
    _aten.randperm: lambda operation, gpu: 40 * int(operation.result.numel()),
}
