"""Chooses between kernels that compute one product: torch's, and those of the accelerator.

Graphs have torch's operators, which every compiler knows. What runs them, eager mode too, takes a kernel of the
accelerator where that is faster: the same product up to rounding.
"""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import _torch, hooks


def int8_mm(x: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor) -> Any:
    """Computes the product of a few rows and a weight in eight bits.

    Args:
        x: `[rows, N]`.
        codes: `int8[M, N]`, contiguous.
        scale: `[M]`, in the dtype of `x`.

    Returns:
        `x @ (codes * scale[:, None]).t()`.
    """
    func = _torch.quantized.int8_mm
    if type(x) is type(codes) is torch.Tensor and not _torch.dispatch.count_dispatch_modes():
        func = fastest(func)
    return func(x, codes, scale)


def fastest(func: object) -> Any:
    """Returns the operator that computes what `func` does, and has the faster kernel on this machine."""
    return func if hooks.products is None else _FASTER.get(func, func)


_FASTER: dict[object, Any] = {_torch.quantized.int8_mm: _torch.quantized.own_int8_mm}
