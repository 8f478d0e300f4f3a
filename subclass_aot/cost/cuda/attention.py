"""Which kernel computes attention on CUDA.

Source: `select_sdp_backend` and its checks in ATen's `native/transformers/cuda/sdp_utils.cpp` and `sdp_utils_cpp.h`,
and `scaled_dot_product_attention` in `native/transformers/attention.cpp`. All of it was read, and an H100
with torch 2.11 chooses so. Of cuDNN the version is taken to be later than 9.15, as in wheels of torch for CUDA 13.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.cost.cuda.profile import profile

Tensor = torch.Tensor
_aten = torch.ops.aten

MATH, FLASH, EFFICIENT, CUDNN = range(4)
"""The kernels by the numbers that C++ has for them."""

_HALF = (torch.float16, torch.bfloat16)


class Call(NamedTuple):
    """The arguments of attention."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout: float
    is_causal: bool
    scale: float | None
    is_grouped: bool

    @property
    def needs_gradients(self) -> bool:
        return torch.is_grad_enabled() and any(x.requires_grad for x in (self.query, self.key, self.value))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Does what `scaled_dot_product_attention` does on CUDA; returns `NotImplemented` where it is written out there."""
    call = Call(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if not (query.dim() == key.dim() == value.dim() == 4) or is_causal and attn_mask is not None:
        return NotImplemented  # type: ignore[no-any-return]  # which is an error where it is one on CUDA
    kernel = {CUDNN: _cudnn, FLASH: _flash, EFFICIENT: _efficient}.get(chosen(call))
    return NotImplemented if kernel is None else kernel(call)


def chosen(call: Call) -> int:
    """Returns the number of the kernel that takes a call with four dims; that of the written form if none does."""
    order = _torch.cuda.attention_order()
    if order[0] != CUDNN and _prefers_cudnn():
        order = [CUDNN, *order]
    takes = {CUDNN: _cudnn_takes, FLASH: _flash_takes, EFFICIENT: _efficient_takes}
    for kernel in order:
        if kernel == MATH and torch.backends.cuda.math_sdp_enabled():
            return MATH
        if kernel in takes and takes[kernel](call):
            return kernel
    return MATH


def _capability() -> tuple[int, int]:
    return profile().capability or (0, 0)


def _prefers_cudnn() -> bool:
    """Returns what `check_prefer_cudnn_attention` does."""
    return _capability()[0] in (9, 10) and os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") != "1"


def _are_dense(call: Call, ignore_single: bool) -> bool:
    """Returns what the checks of dense inputs say, which all kernels have."""
    query, key, value = call[:3]
    if not (query.shape[0] == key.shape[0] == value.shape[0]) or 0 in (query.shape[2], key.shape[2]):
        return False
    heads = [x.shape[1] for x in call[:3]]
    fits = heads[1] == heads[2] and heads[0] % heads[1] == 0 if call.is_grouped else len(set(heads)) == 1
    packed = all(x.stride(-1) == 1 for x in call[:3]) or ignore_single and query.shape[-1] == 1
    return fits and packed and (call.mask is None or call.mask.stride(-1) == 1)


def _have_dtype(call: Call, *dtypes: torch.dtype) -> bool:
    return call.query.dtype is call.key.dtype is call.value.dtype and call.query.dtype in dtypes


def _flash_takes(call: Call) -> bool:
    width, capability = call.query.shape[-1], _capability()
    if not torch.backends.cuda.flash_sdp_enabled() or call.mask is not None or capability < (8, 0):
        return False
    if any(x.shape[-1] != width for x in call[:3]) or width > 256:
        return False
    if call.is_causal and call.query.shape[-2] != call.key.shape[-2]:
        return False
    is_small = (8, 6) <= capability <= (8, 9) or (12, 0) <= capability <= (12, 1)
    if call.needs_gradients and is_small and width > 192 and (call.dropout > 0 or width <= 224):
        return False
    return _have_dtype(call, *_HALF) and _are_dense(call, ignore_single=True)


def _flash(call: Call) -> Tensor:
    """Runs it on heads that are padded to multiples of 8."""
    width = call.query.shape[-1]
    missing = -width % 8
    tensors = [torch.nn.functional.pad(x, (0, missing)) if missing else x for x in call[:3]]
    scale = width**-0.5 if call.scale is None else call.scale
    found = _aten._scaled_dot_product_flash_attention.default
    result: Tensor = found(*tensors, call.dropout, call.is_causal, scale=scale)[0]
    return result[..., :width] if missing else result


def _efficient_takes(call: Call) -> bool:
    is_half, capability = call.query.dtype in _HALF, _capability()
    alignment = 8 if is_half and capability >= (7, 0) else 4 if capability >= (8, 0) else 1
    if not torch.backends.cuda.mem_efficient_sdp_enabled() or call.query.shape[-1] != call.key.shape[-1]:
        return False
    widths = (call.query.shape[-1], call.value.shape[-1])
    if any(width == 0 or width % alignment for width in widths):
        return False
    dtypes = (torch.float16, torch.float32) if capability < (8, 0) else (*_HALF, torch.float32)
    return _have_dtype(call, *dtypes) and _are_dense(call, ignore_single=False)


def _efficient(call: Call) -> Tensor:
    query, key, value = call[:3]
    if call.is_grouped:
        key, value = [x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value)]
    mask = _added_mask(call)
    if mask is not None:
        missing = -mask.shape[-1] % 8
        if missing:
            mask = torch.nn.functional.pad(mask, (0, missing))[..., : mask.shape[-1]]
        mask = mask.expand(*query.shape[:3], key.shape[2])
    found = _aten._scaled_dot_product_efficient_attention.default
    options = (call.needs_gradients, call.dropout, call.is_causal)
    return found(query, key, value, mask, *options, scale=call.scale)[0]  # type: ignore[no-any-return]


def _cudnn_takes(call: Call) -> bool:
    query, key, value, mask = call[:4]
    if not torch.backends.cuda.cudnn_sdp_enabled() or _capability() < (8, 0) or not _have_dtype(call, *_HALF):
        return False
    if torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled():
        return False
    if mask is not None and not _fits(mask, (*query.shape[:3], key.shape[2])):
        return False
    widths = (query.shape[-1], value.shape[-1])
    is_wide = _capability()[0] in (9, 10) and widths == (192, 128)
    most = 128
    if not _torch.cuda.CHECKS_CUDNN_STRICTLY:
        most = 256 if _capability() == (9, 0) else 128
    elif not (call.dropout * 16).is_integer() or max(query.shape[:2]) > 65535:
        return False
    if any(width % 8 or width > most for width in widths) and not is_wide:
        return False
    if key.shape[2] == 1 or call.dropout and query.shape[2] == 1:
        return False
    return _are_dense(call, ignore_single=True)


def _fits(mask: Tensor, sizes: tuple[int, ...]) -> bool:
    if mask.requires_grad or mask.dim() not in (2, 4):
        return False
    return all(n in (1, size) for n, size in zip(mask.shape, sizes[-mask.dim() :], strict=True))


def _cudnn(call: Call) -> Tensor:
    found = _aten._scaled_dot_product_cudnn_attention.default
    options = (call.needs_gradients, call.dropout, call.is_causal, False)
    return found(*call[:3], _added_mask(call), *options, scale=call.scale)[0]  # type: ignore[no-any-return]


def _added_mask(call: Call) -> Tensor | None:
    """Returns the mask as what is added to scores."""
    if call.mask is None or call.mask.dtype is not torch.bool:
        return call.mask
    zero, never = (torch.scalar_tensor(x, dtype=call.query.dtype, device=call.mask.device) for x in (0.0, -torch.inf))
    return torch.where(call.mask, zero, never)
