"""What kernels and libraries take on CUDA, beside the results.

Compared with what an H100 allocated under torch 2.11; what convolutions and recurrent layers of cuDNN take while they
run is not known.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.devices import Device, device_of
from subclass_aot.meta import Operation
from subclass_aot.profiling.reductions import workspace_of_reduction

_aten: Any = torch.ops.aten


def gpu_of(known: Device | None) -> Device:
    """Returns the GPU that a run is on: the one that is named, else that of this machine, else an H100.

    Args:
        known: The device that the user has named.
    """
    if known is not None and known.type == "cuda":
        return known
    if _torch.cuda.has_no_cuda():
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
    of_attention = _ATTENTION.get(operation.func)
    return None if of_attention is None else (of_attention(*operation.args[:4]), "")


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
    """Returns the bytes of the gradient of the queries in float32, of a sum for each, and of groups taken apart."""
    batch, heads, queries, width = query.shape
    taken = 4 * batch * heads * queries * (width + 1)
    if key.shape[1] != heads:
        taken += sum(x.numel() // x.shape[1] * heads * x.dtype.itemsize for x in (key, value))
    return int(taken)


def _flash_attention(grad: Any, query: Any, key: Any, value: Any) -> int:
    """Returns the like of the above, of whole blocks: `native/transformers/cuda/flash_attn/flash_api.cpp`."""
    batch, heads, queries, width = query.shape
    rows, columns = -(-queries // 128) * 128, -(-width // 32) * 32 if width <= 192 else 256
    taken = 4 * batch * heads * rows * (columns + 1)
    if key.shape[1] != heads:
        taken += sum(x.numel() // x.shape[1] * heads * x.dtype.itemsize for x in (key, value))
    return int(taken)


def _efficient_attention(grad: Any, query: Any, key: Any, value: Any) -> int:
    """Returns the bytes of the gradient of the queries in float32, of a sum for each, and of a copy of the gradient."""
    batch, heads, queries, width = query.shape
    copied = 0 if grad.transpose(1, 2).is_contiguous() else grad.nbytes
    return int(4 * batch * heads * queries * (width + 1) + copied)


_ATTENTION: dict[Any, Any] = {
    _aten._scaled_dot_product_cudnn_attention_backward.default: _cudnn_attention,
    _aten._scaled_dot_product_flash_attention_backward.default: _flash_attention,
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_attention,
}
