"""Chooses between kernels for quantized weights: torch's, and those of the accelerator.

Graphs have torch's operators, which every compiler knows. What runs them, eager mode too, takes a kernel of the
accelerator where that is faster: the same product up to rounding.

Some take several operators of torch, and for the accelerator one: the dense weight of one in four bits, with the same
result, and the product with a weight whose dense form is never made. That one is in graphs for the backends "eager"
and "inductor" only; for other compilers a trace writes it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.written_out import WRITTEN_OUT
from subclass_aot.meta import MetaTensor


def int8_mm(x: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor) -> Any:
    """Computes the product of a few rows and a weight in eight bits.

    Args:
        x: `[rows, N]`.
        codes: `int8[M, N]`, contiguous.
        scale: `[M]`, or `[1]` for all, in the dtype of `x`.

    Returns:
        `x @ (codes * scale[:, None]).t()`.
    """
    if scale.shape != codes.shape[:1]:
        scale = scale.expand(codes.shape[0]).contiguous()  # the kernel reads one for each row
    return _now(_torch.quantized.int8_mm, x, codes)(x, codes, scale)


def int_product(x: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Returns `int8[rows, N] @ int8[N, K]`, with sums in int32."""
    func, rows = _now(_torch.quantized.int_mm, x, codes), x.shape[0]
    if x.device.type != "cuda" or rows > 16:  # of fewer, cuBLAS is not asked by torch
        return func(x, codes)  # type: ignore[no-any-return]
    return func(torch.nn.functional.pad(x, (0, 0, 0, 17 - rows)), codes)[:rows]  # type: ignore[no-any-return]


def fastest(func: object) -> Any:
    """Returns the operator that computes what `func` does, and has the faster kernel on this machine."""
    return func if hooks.products is None else _FASTER.get(func, func)


_FASTER: dict[object, Any] = {
    _torch.quantized.int8_mm: _torch.quantized.own_int8_mm,
    _torch.quantized.int_mm: _torch.quantized.own_int_mm,
}


def _now(func: object, *tensors: torch.Tensor) -> Any:
    """Returns what is called with such tensors: in graphs, and for who follows operators, it is torch's operator."""
    runs = all(type(x) is torch.Tensor for x in tensors) and not _torch.dispatch.count_dispatch_modes()
    return fastest(func) if runs else func


def writes_out(op: Operator) -> Callable[[Callable[..., torch.Tensor]], Callable[..., torch.Tensor]]:
    """Declares a function that computes what an operator of this library does, in operators of torch."""

    def declare(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        WRITTEN_OUT[op] = function
        _torch.quantized.written_out(op, function)
        return function

    return declare


def product(x: torch.Tensor, kind: str, fields: Sequence[torch.Tensor], numbers: Sequence[float] = ()) -> Any:
    """Computes the product of some rows and a weight, if the accelerator has a faster kernel than the dense product.

    Args:
        x: `[rows, N]`.
        kind: The name of the class of the weight `[M, N]`.
        fields: The dense tensors that it is made of, in their order.
        numbers: What the class has beside them.

    Returns:
        `x @ weight.t()`, or `NotImplemented`.
    """
    if not _is_served(type(x)) or not _torch.quantized.takes_weight(x, fields):
        return NotImplemented
    return _torch.quantized.weight_mm(x.contiguous(), list(fields), kind, list(numbers))


def _is_served(kind: type) -> bool:
    """Returns whether operators of the accelerator may be called with tensors of a class."""
    if hooks.products is None:
        return False
    runs = kind is torch.Tensor and not _torch.dispatch.count_dispatch_modes()
    return runs or (kind is MetaTensor and torch.compiler.is_compiling())


def dense(op: Operator, codes: torch.Tensor, tile: int, *rest: torch.Tensor | Sequence[float]) -> torch.Tensor:
    """Returns the dense weight of codes in four bits.

    Args:
        op: The operator that computes it.
        codes: Its first argument.
        tile: How many codes lie side by side, for one scale or in one row of a tile.
        *rest: Its other arguments.
    """
    if not _is_served(type(codes)) or not _torch.quantized.takes_dense(codes, tile, *rest):
        return WRITTEN_OUT[op](codes, *rest)  # type: ignore[no-any-return]
    return op(codes, *rest)  # type: ignore[no-any-return]


def scaled(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Returns `codes * scale`, where that may be in the memory of the codes.

    Args:
        codes: In the dtype of the scale, and nobody else's.
        scale: Broadcast to the codes.
    """
    if torch.compiler.is_compiling() or scale.requires_grad or type(codes) is not type(scale):
        return codes * scale
    return codes.mul_(scale)  # in half of the memory, and of the time
