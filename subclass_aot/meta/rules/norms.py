"""Layouts of norms, and the precision of their statistics on CPU.

A kernel for CPU that is given parameters of another type than the input takes that to be mixed precision, and computes
statistics in float32; else in the type of the input. Torch's rules have float32 in any case, as on CUDA.
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


@corrects(_aten.native_layer_norm.default)
def _(found: Any, x: Tensor, size: Sequence[int], weight: Tensor | None, bias: Tensor | None, *args: Any) -> Any:
    result, *statistics = found
    return (_with(result, strides.packed(result.shape)), *_as(_statistics_dtype(x, weight, bias), statistics))


@corrects(_aten.native_layer_norm_backward.default)
def _(found: Any, *args: Any) -> Any:
    of_x, *others = found
    return (None if of_x is None else _with(of_x, strides.packed(of_x.shape)), *others)


@corrects(_aten.native_group_norm.default)
def _(found: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, *options: Any) -> Any:
    result, *statistics = found
    return (_with(result, strides.suggested(x, x.shape)), *_as(_statistics_dtype(x, weight, bias), statistics))


@corrects(_aten.native_group_norm_backward.default)
def _(found: Any, gradient: Tensor, x: Tensor, *args: Any) -> Any:
    of_x, *others = found
    return (None if of_x is None else x.new_empty_strided(x.shape, strides.suggested(x, x.shape)), *others)


@corrects(
    _aten._native_batch_norm_legit.no_stats,
    _aten._batch_norm_with_update.default,
    _aten._batch_norm_with_update_functional.default,
)
def _(found: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, *args: Any) -> Any:
    result, mean, inverse, *others = found
    saved = _as(_statistics_dtype(x, weight, bias, *args), [mean, inverse])
    reserve, running = others[:1], [y.to(r.dtype) for y, r in zip(others[1:], args, strict=False)]
    return (_with(result, strides.packed_first(x, x.shape)), *saved, *reserve, *running)


@corrects(
    _aten.native_batch_norm.default,
    _aten._native_batch_norm_legit.default,
    _aten._native_batch_norm_legit_functional.default,
)
def _(
    found: Any,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    *options: Any,
) -> Any:
    result, *statistics = found
    saved = _as(_statistics_dtype(x, weight, bias, mean, var), statistics[:2])
    if not training:
        saved = [each.new_empty(0) for each in saved]
    running = _as(x.dtype if mean is None else mean.dtype, statistics[2:])
    return (_with(result, strides.packed_first(x, x.shape)), *saved, *running)


@corrects(_aten._native_batch_norm_legit_no_training.default, _aten._batch_norm_no_update.default)
def _(
    found: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, *options: Any
) -> Any:
    dtype = _statistics_dtype(x, weight, bias, mean, var)
    saved = [x.new_empty(0, dtype=dtype) for _ in range(2)]
    return (_with(found[0], strides.packed_first(x, x.shape)), *saved, *found[3:])


@corrects(_aten.native_batch_norm_backward.default, _aten.batch_norm_backward.default, on_each_device=True)
def _(found: Any, gradient: Tensor, x: Tensor, weight: Tensor | None, *args: Any) -> Any:
    of_x, *others = found
    if result_device().type != "cpu":
        on_cuda = of_x is not None and result_device().type == "cuda"
        return (_with(of_x, strides.suggested(x, x.shape)), *others) if on_cuda else found
    if of_x is not None:
        agree = _torch.inductor.looks_channels_last(gradient) == _torch.inductor.looks_channels_last(x) and _is_packed(
            gradient
        )
        of_x = _with(of_x, strides.packed_first(x, x.shape) if agree else strides.suggested(x, x.shape))
    return (of_x, *_as(_statistics_dtype(x, weight, *args[:4]), others))


def _statistics_dtype(x: Tensor, *arguments: object) -> torch.dtype:
    return torch.float32 if any(isinstance(p, Tensor) and p.dtype is not x.dtype for p in arguments) else x.dtype


def _is_packed(x: Tensor) -> bool:
    formats = {4: [torch.channels_last], 5: [torch.channels_last_3d]}.get(x.dim(), [])
    return any(x.is_contiguous(memory_format=each) for each in [torch.contiguous_format, *formats])


def _as(dtype: torch.dtype, tensors: list[Tensor | None]) -> list[Any]:
    return [None if x is None else x.to(dtype) for x in tensors]


def _with(result: Tensor, chosen: strides.Strides) -> Tensor:
    return result if chosen == tuple(result.stride()) else result.new_empty_strided(result.shape, chosen)
