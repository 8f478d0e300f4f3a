"""Shape rules for operators of quantization-aware training, which have kernels on devices alone.

A result has the layout of the tensor that is quantized; a mask beside it says which elements were not clamped.
"""

from __future__ import annotations

import torch

from subclass_aot.meta import strides
from subclass_aot.meta.infer import register_meta

Tensor = torch.Tensor
_aten = torch.ops.aten


@register_meta(_aten.fake_quantize_per_tensor_affine_cachemask.default)
@register_meta(_aten.fake_quantize_per_channel_affine_cachemask.default)
@register_meta(_aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def _(self: Tensor, *options: object) -> tuple[Tensor, Tensor]:
    return _like(self), _like(self, torch.bool)


@register_meta(_aten._fake_quantize_learnable_per_tensor_affine.default)
@register_meta(_aten._fake_quantize_learnable_per_channel_affine.default)
def _(self: Tensor, *options: object) -> Tensor:
    return _like(self)


@register_meta(_aten._fake_quantize_learnable_per_tensor_affine_backward.default)
@register_meta(_aten._fake_quantize_learnable_per_channel_affine_backward.default)
def _(grad: Tensor, self: Tensor, scale: Tensor, zero_point: Tensor, *options: object) -> tuple[Tensor, ...]:
    return _like(self), scale.new_empty(scale.shape), zero_point.new_empty(zero_point.shape)


def _like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty_strided(x.shape, strides.preserved(x), dtype=dtype or x.dtype, device=x.device)
