"""Python functions of torch that run one overload of an operator, and are called in two thirds of the time.

An overload is called through its schema, a function of Python through a parser made for it. It is the same operator for
the arguments that a graph has, which are those of the schema; each was compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.symbols import Number

_aten = torch.ops.aten


def binding_of(func: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the fastest callable that is `func`."""
    binding: Callable[..., Any] = BINDINGS.get(func) or _torch.operators.call_of(func)
    return binding


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
    **{getattr(_aten, name).Tensor: getattr(torch, name) for name in ("add", "sub", "mul", "div")},
    **{
        getattr(_aten, name).default: getattr(torch, name)
        for name in (
            "abs", "addmm", "bmm", "cat", "clone", "cos", "cumsum", "detach", "empty_like", "exp", "gather", "log",
            "maximum", "minimum", "mm", "neg", "ones_like", "permute", "reciprocal", "relu", "rsqrt", "sigmoid", "sin",
            "sqrt", "stack", "sum", "t", "tanh", "tril", "triu", "unsqueeze", "zeros_like",
        )
    },
    _aten.as_strided_scatter.default: _as_strided_scatter,
    _aten.copy_.default: torch.Tensor.copy_,
    _aten.expand.default: torch.Tensor.expand,
    _aten.view.default: torch.Tensor.view,
    _aten.add_.Tensor: torch.Tensor.add_,
    _aten.mean.dim: torch.mean,
    _aten.pow.Tensor_Scalar: torch.pow,
    _aten.select.int: torch.select,
    _aten.squeeze.dim: torch.squeeze,
    _aten.sum.dim_IntList: torch.sum,
    _aten.transpose.int: torch.transpose,
    _aten.unbind.int: torch.unbind,
    _aten.where.self: torch.where,
}  # fmt: skip
"""By the overload."""
