"""Python functions of torch that run one overload of an operator, and are called in two thirds of the time.

An overload is called through its schema, a function of Python through a parser made for it. It is the same operator for
the arguments that a graph has, which are those of the schema; each was compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.written_out import WRITTEN_OUT
from subclass_aot.meta.symbols import Number
from subclass_aot.tensors.products import fastest

_aten = torch.ops.aten


def binding_of(func: Callable[..., Any], options: Collection[str] = ()) -> Callable[..., Any]:
    """Returns the fastest callable that computes what `func` does.

    Args:
        func: What a graph calls.
        options: The names that it is called with.
    """
    func = fastest(func)
    if func in FACTORIES and "device" in options:
        return FACTORIES[func]
    binding: Callable[..., Any] = BINDINGS.get(func) or _torch.operators.call_of(func)
    return binding


def kernel_of(func: Any) -> Any:
    """Returns the operator whose kernel in C++ computes what `func` does; None where Python does."""
    func = fastest(func)
    is_own = func in (_torch.quantized.own_int8_mm, _torch.quantized.own_int_mm) or func in WRITTEN_OUT
    is_native = func.namespace == "aten" or is_own
    return func if is_native and func not in _OWN else None


def _as_strided_scatter(
    tensor: torch.Tensor,
    src: torch.Tensor,
    size: Sequence[Number],
    stride: Sequence[Number],
    storage_offset: Number | None = None,
) -> torch.Tensor:
    """Runs the kernel on a detached tensor: it refuses one that requires grad if it is not packed, even without
    grad.
    """
    return torch.as_strided_scatter(tensor.detach(), src, size, stride, storage_offset)


BINDINGS: dict[Any, Callable[..., Any]] = {
    **{
        getattr(getattr(_aten, name), overload): getattr(torch, name)
        for name in ("add", "sub", "mul", "div", "eq", "ge", "gt", "le", "lt", "ne")
        for overload in ("Tensor", "Scalar")
    },
    **{
        getattr(getattr(_aten, name), overload): getattr(torch.Tensor, name)
        for name in ("add_", "sub_", "mul_", "div_")
        for overload in ("Tensor", "Scalar")
    },
    **{
        getattr(_aten, name).default: getattr(torch.Tensor, name)
        for name in (
            "abs_", "clamp_", "copy_", "cos_", "exp_", "expand", "log_", "neg_", "reciprocal_", "repeat", "round_",
            "rsqrt_", "sigmoid_", "sin_", "sqrt_", "tanh_", "view",
        )
    },
    **{
        getattr(_aten, name).default: getattr(torch, name)
        for name in (
            "abs", "addmm", "amax", "bitwise_not", "bmm", "cat", "clamp", "clone", "convolution", "cos", "cumsum",
            "detach", "embedding", "empty_like", "exp", "gather", "index_select", "log", "logical_not", "maximum",
            "mean", "minimum", "mm", "native_group_norm", "native_layer_norm", "neg", "ones_like", "permute",
            "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sin", "split_with_sizes", "sqrt", "stack", "sum", "t",
            "tanh", "tril", "triu", "unsqueeze", "zeros_like",
        )
    },
    _aten._local_scalar_dense.default: torch.Tensor.item,
    _aten.as_strided_scatter.default: _as_strided_scatter,
    _aten.bitwise_and.Tensor: torch.bitwise_and,
    _aten.gelu.default: torch.nn.functional.gelu,
    _aten.linear.default: torch.nn.functional.linear,
    _aten.masked_fill.Scalar: torch.masked_fill,
    _aten.masked_fill.Tensor: torch.masked_fill,
    _aten.mean.dim: torch.mean,
    _aten.pow.Tensor_Scalar: torch.pow,
    _aten.select.int: torch.select,
    _aten.rsub.Scalar: torch.rsub,
    _aten.squeeze.dim: torch.squeeze,
    _aten.squeeze.dims: torch.squeeze,
    _aten.sum.dim_IntList: torch.sum,
    _aten.transpose.int: torch.transpose,
    _aten.unbind.int: torch.unbind,
    _aten.var_mean.correction: torch.var_mean,
    _aten.where.self: torch.where,
    **_torch.operators.PRIVATE_BINDINGS,
}  # fmt: skip
"""By the overload."""
FACTORIES: dict[Any, Callable[..., Any]] = {
    _aten.arange.default: torch.arange,
    _aten.arange.start: torch.arange,
    _aten.arange.start_step: torch.arange,
    _aten.empty.memory_format: torch.empty,
    _aten.full.default: torch.full,
    _aten.ones.default: torch.ones,
    _aten.scalar_tensor.default: torch.scalar_tensor,
    _aten.zeros.default: torch.zeros,
}
"""By the overload, where it is called with a device: without one, a default device is for functions of torch alone."""
_OWN = frozenset({_aten.as_strided_scatter.default})
"""Operators that a function of this module stands for."""
