"""Autocast for CUDA, of tensors that claim to be there where there is no such device.

Torch's own kernels cast what C++ takes to be on CUDA, and nothing that claims it. The lists are those of
`ATen/autocast_mode.h`; a test compares them with the kernels that torch has. Half precision on hardware was not
compared with them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.meta import MetaTensor

Tensor = torch.Tensor
_aten = torch.ops.aten

IN_HALF = """_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr matmul
    einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell
    _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention
    scaled_dot_product_attention""".split()
IN_FLOAT32 = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim
    nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
    hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss
    soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm
    logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d
    upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa
    upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa""".split()
TO_FLOAT32 = """prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList""".split()
"""They get the dtype of the result, and cast themselves."""
NORMS = {"norm.Scalar": "ScalarOpt_dtype", "norm.ScalarOpt_dim": "ScalarOpt_dim_dtype"}
"""With the overloads that have a dtype."""
IN_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()


class _Casts(threading.local):
    """What was cast in this thread since autocast was entered: weights are cast once."""

    def __init__(self) -> None:
        self.of_weight: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}


_casts = _Casts()


def put_kernels() -> None:
    """Puts kernels into torch's dispatcher in place of those that cast nothing here."""
    made = {
        **dict.fromkeys(IN_HALF, _in_half),
        **dict.fromkeys(IN_FLOAT32, _in_float32),
        **dict.fromkeys(TO_FLOAT32, _to_float32),
        **dict.fromkeys(NORMS, _norm),
        **dict.fromkeys(IN_WIDEST, _in_widest),
    }
    for name, rule in made.items():
        if _torch.cuda.is_autocast(f"aten::{name}"):  # lists differ by the version of torch
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(_aten, packet), overload or "default")
            _torch.cuda.put_kernel(name, _kernel(operator, rule), "AutocastCUDA")
    _torch.cuda.put_kernel("_cudnn_rnn", _kernel(_aten._cudnn_rnn.default, _in_half), "AutocastCUDA")
    _torch.cuda.on_cleared_casts(lambda: _casts.of_weight.clear())


def _kernel(operator: Operator, rule: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _torch.cuda.without_autocast():
            return rule(operator, args, kwargs)

    return kernel


def _in_half(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return operator(*_cast(args, _half()), **_cast(kwargs, _half()))


def _in_float32(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return operator(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))


def _to_float32(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not _is_cast(args[0]):
        return operator(*args, **kwargs)
    place = [a.name for a in _torch.operators.schema_of(operator).arguments].index("dtype")
    given = args[place] if len(args) > place else kwargs.get("dtype")
    return operator(*args[:place], *args[place + 1 :], **{**kwargs, "dtype": torch.float32 if given is None else given})


def _norm(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not _is_cast(args[0]):
        return operator(*args, **kwargs)
    name = operator.name().removeprefix("aten::")
    p = args[1] if len(args) > 1 else kwargs.pop("p", 2)
    overload = getattr(_aten.norm, NORMS[name])
    return overload(args[0], p, *args[2:], **kwargs, dtype=torch.float32)


def _in_widest(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors = [x for x in _tensors(args) if _is_cast(x)]
    dtype = torch.float32 if any(x.dtype is torch.float32 for x in tensors) else _half()
    return operator(*_cast(args, dtype), **_cast(kwargs, dtype))


def _half() -> torch.dtype:
    return torch.get_autocast_dtype("cuda")


def _is_cast(x: object) -> bool:
    """Returns whether autocast casts a value: floats on the device, which are not float64."""
    if type(x) is not MetaTensor or x.meta_spec.device.type != "cuda":
        return False
    return x.meta_spec.dtype.is_floating_point and x.meta_spec.dtype is not torch.float64


def _tensors(values: Iterable[object]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, list | tuple):
            found += _tensors(value)
        elif isinstance(value, Tensor):
            found.append(value)
    return found


def _cast(value: Any, dtype: torch.dtype) -> Any:
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([_cast(x, dtype) for x in value])
    if kind is dict:
        return {name: _cast(x, dtype) for name, x in value.items()}
    if not _is_cast(value) or value.dtype is dtype:
        return value
    keeps = dtype is _half() and value.dtype is torch.float32 and value.requires_grad and value.is_leaf
    if not (keeps and torch.is_autocast_cache_enabled() and not _torch.autograd.is_view(value)):
        return value.to(dtype)
    key = id(value), dtype
    if key not in _casts.of_weight:
        _casts.of_weight[key] = value, value.to(dtype)
    return _casts.of_weight[key][1]
