"""What CUDA does with operators that torch composes of others, in which a CPU's kernels do something else.

Note [Claims of CUDA]
~~~~~~~~~~~~~~~~~~~~~
C++ has a tensor that claims `cuda:0` for one on `meta` where there is no CUDA device (Note [Devices without hardware]).
Most operators do not ask for the device. Those that are composed of others above autograd do: attention, dropout,
recurrent layers. So they have kernels here, at the key of autograd for `meta`: below autocast and above autograd, so
that formulas of autograd are those of the kernels that CUDA takes, also in what is called by C++, and in what a
checkpoint computes again. They are put into the dispatcher when a tensor claims CUDA for the first time, for good;
other tensors go on to what was there before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.cost.cuda import autocast
from subclass_aot.cost.cuda.attention import attention
from subclass_aot.cost.cuda.recurrent import layer_of
from subclass_aot.meta import MetaTensor, put_forms, spec

Tensor = torch.Tensor
_aten = torch.ops.aten


def _dropout(x: Tensor, p: float, train: bool) -> Any:
    # Source: `is_fused_kernel_acceptable` in ATen's `native/Dropout.cpp`; read.
    if not train or not 0 < p < 1 or not x.numel():
        return NotImplemented
    return _aten.native_dropout.default(x, p, train)[0]


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Any:
    # Source: `_weight_norm` in ATen's `native/WeightNorm.cpp`; read.
    return _aten._weight_norm_interface.default(v, g, dim)[0] if dim in (0, v.dim() - 1) else NotImplemented


def _rms_norm(x: Tensor, sizes: list[int], weight: Tensor | None = None, eps: float | None = None) -> Any:
    # An H100 does so with torch 2.11. Of two dtypes it is composed, by `rms_norm_symint` in `native/layer_norm.cpp`.
    if x.is_complex() or weight is not None and weight.dtype is not x.dtype:
        return NotImplemented
    return _aten._fused_rms_norm.default(x, sizes, weight, eps)[0]


def _shapes_of_rms_norm(x: Tensor, sizes: list[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    roots = [*x.shape[: x.dim() - len(sizes)], *[1] * len(sizes)]
    return x.new_empty(x.shape), x.new_empty(roots, dtype=dtype)


def _softmax(of: Operator) -> Callable[..., Any]:
    # Source: `softmax` in ATen's `native/SoftMax.cpp`; read. Of float16, to float32, no copy is made in between.
    def rule(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        if x.dtype is not torch.float16 or dtype is not torch.float32:
            return NotImplemented
        return of(x, dim, True)

    return rule


RULES: dict[Operator, Callable[..., Any]] = {
    _aten.scaled_dot_product_attention.default: attention,
    _aten.dropout.default: _dropout,
    _aten._weight_norm.default: _weight_norm,
    _aten.rms_norm.default: _rms_norm,
    _aten.softmax.int: _softmax(_aten._softmax.default),
    _aten.log_softmax.int: _softmax(_aten._log_softmax.default),
    **{getattr(getattr(_aten, name), kind): layer_of(name, kind == "data")
       for name in ("lstm", "gru", "rnn_tanh", "rnn_relu") for kind in ("input", "data")},
}  # fmt: skip
"""By operator, what it does on CUDA; `NotImplemented` if that is what it does elsewhere."""


def on_claim(func: Operator, *args: object, **kwargs: object) -> Any:
    """Returns what an operator of `RULES` gives of tensors that claim CUDA where there is none; of others
    `NotImplemented`.
    """
    return RULES[func](*args, **kwargs) if _is_claim(args[0]) and _torch.cuda.has_no_cuda() else NotImplemented


def _is_claim(x: object) -> bool:
    return type(x) is MetaTensor and x.meta_spec.device.type == "cuda"


def _kernel(func: Operator) -> Callable[..., Any]:
    composed = _torch.cuda.composed(func)

    def kernel(*args: object, **kwargs: object) -> Any:
        result = on_claim(func, *args, **kwargs)
        return composed(*args, **kwargs) if result is NotImplemented else result

    return kernel


@functools.cache
def _keys() -> Any:
    """Puts the kernels into the dispatcher, once, and returns the keys that tensors need to reach them."""
    if not _torch.cuda.has_no_cuda():
        return None
    for func in RULES:
        _torch.cuda.put_kernel(func.name().removeprefix("aten::"), _kernel(func), "AutogradMeta")
    # The operator is composed where a device has no kernel for it, and else it has a formula of autograd.
    _torch.cuda.put_kernel("_fused_rms_norm", _shapes_of_rms_norm, "Meta")
    autocast.put_kernels()
    _torch.cuda.group_by_claim(MetaTensor)
    return _torch.cuda.AUTOCAST


spec.keys_of_claims["cuda"] = _keys
# In inference mode autograd does not take these apart, and they reach a stream.
put_forms({func: functools.partial(on_claim, func) for func in RULES})
