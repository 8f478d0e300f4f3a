"""The floating-point operations of an operator, by torch's formulas and some that torch lacks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators.kinds import OperatorKind, kind_of
from subclass_aot.base.operators.schema import effects_of

_aten: Any = torch.ops.aten
_Formula = Callable[..., int]


def flops_of(func: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> int:
    """Returns the floating-point operations of the products in an operator: two for each multiplication and addition.

    The formulas are those of `torch.utils.flop_counter`, with what is registered there by others, and some more.
    Operators on single elements, reductions and normalizations count as none, as they do there: memory bounds them.

    Args:
        func: The operator.
        args: Its arguments.
        kwargs: Its keyword arguments.
        result: What it returned.
    """
    formula = _formulas().get(func.overloadpacket)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=result))


def is_counted(func: Operator) -> bool:
    """Returns whether `flops_of` is right about an operator; False if it may have products that nobody has a formula
    for.
    """
    return func.overloadpacket in _formulas() or _is_without_products(func)


@functools.cache
def _is_without_products(func: Operator) -> bool:
    effects = effects_of(func)
    kind = kind_of(func)
    if kind is OperatorKind.IN_PLACE and torch.Tag.pointwise not in func.tags:
        kind = None
    name = func.overloadpacket.__name__.lstrip("_").removesuffix("_")
    return (
        kind is not None
        or torch.Tag.pointwise in func.tags
        or (not effects.writes and any(view is not None for view in effects.returns_view_of))
        or func.namespace in ("profiler", *_torch.collectives.COLLECTIVES, "fsdp")
        or (func.namespace in ("aten", "prims") and name.removesuffix("_backward") in _WITHOUT_PRODUCTS)
        or (func.namespace == "aten" and name.startswith(("foreach_", "fused_adam", "fused_sgd")))
    )


def _formulas() -> Mapping[Any, _Formula]:
    """Returns the formulas by operator: those of torch as they are now, since users register theirs there."""
    from torch.utils.flop_counter import flop_registry  # which few programs need

    if len(flop_registry) != _registered[0]:
        _registered[0] = len(flop_registry)
        _known.update({**_OWN, **flop_registry, **_ATTENTION})
    return _known


_known: dict[Any, _Formula] = {}
_registered = [0]
"""How many formulas torch had when `_known` was filled."""


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: object, **kwargs: object) -> int:
    from torch.utils.flop_counter import sdpa_flop_count

    return int(sdpa_flop_count(q.shape, _with_heads(k, q), _with_heads(v, q)))


def _attention_backward(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: object, **kwargs: object
) -> int:
    from torch.utils.flop_counter import sdpa_backward_flop_count

    return int(sdpa_backward_flop_count(grad.shape, q.shape, _with_heads(k, q), _with_heads(v, q)))


def _with_heads(x: torch.Tensor, q: torch.Tensor) -> tuple[int, ...]:
    """Returns the shape of keys or values once each head of the queries has its own: torch 2.11 counts no groups."""
    return (*x.shape[:-3], *q.shape[-3:-2], *x.shape[-2:])


def _product(left: torch.Tensor, right: torch.Tensor, *args: object, **kwargs: object) -> int:
    return 2 * int(left.shape[0]) * int(left.shape[1]) * int(right.shape[1])


def _packed_product(
    left: torch.Tensor, right: torch.Tensor, *args: object, out_val: torch.Tensor, **kwargs: object
) -> int:
    return 2 * int(left.shape[-1]) * int(out_val.numel())


def _of_vector(matrix: torch.Tensor, *args: object, **kwargs: object) -> int:
    return 2 * int(matrix.numel())


def _added_of_vector(added: object, matrix: torch.Tensor, *args: object, **kwargs: object) -> int:
    return 2 * int(matrix.numel())


def _added_outer(added: torch.Tensor, *args: object, **kwargs: object) -> int:
    return 2 * int(added.numel())


def _steps(matrices: Iterable[torch.Tensor], rows: torch.Tensor) -> int:
    """Returns the operations of the products of all matrices with as many rows as there are words in a batch."""
    return 2 * sum(int(x.numel()) for x in matrices if x.dim() == 2) * (int(rows.numel()) // int(rows.shape[-1]))


def _recurrent(x: torch.Tensor, w0: torch.Tensor, w1: torch.Tensor, *args: object, **kwargs: object) -> int:
    return _steps((w0, w1), x)


def _recurrent_backward(x: torch.Tensor, *weights: torch.Tensor, **kwargs: object) -> int:
    return 2 * _steps(weights[:2], x)


def _cudnn_recurrent(x: torch.Tensor, weights: Sequence[torch.Tensor], *args: object, **kwargs: object) -> int:
    return _steps(weights, x)


def _cudnn_recurrent_backward(x: torch.Tensor, weights: Sequence[torch.Tensor], *args: object, **kwargs: object) -> int:
    return 2 * _steps(weights, x)


_BY_NAME: dict[str, _Formula] = {
    "mv": _of_vector,
    "addmv": _added_of_vector,
    "addmv_": _added_of_vector,
    "dot": _of_vector,
    "vdot": _of_vector,
    "addr": _added_outer,
    "_int_mm": _product,
    "_weight_int8pack_mm": _packed_product,
    "_weight_int4pack_mm": _packed_product,
    "_weight_int4pack_mm_for_cpu": _packed_product,
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": _recurrent_backward,
    "_cudnn_rnn": _cudnn_recurrent,
    "_cudnn_rnn_backward": _cudnn_recurrent_backward,
}
_OWN: dict[Any, _Formula] = {
    getattr(_aten, name): formula for name, formula in _BY_NAME.items() if hasattr(_aten, name)
}
_ATTENTION: dict[Any, _Formula] = {
    getattr(_aten, f"_scaled_dot_product_{kernel}_attention{where}{backward}"): formula
    for backward, formula in (("", _attention), ("_backward", _attention_backward))
    for kernel, where in (("efficient", ""), ("flash", ""), ("cudnn", ""), ("flash", "_for_cpu"))
}
"""Of torch's formulas for attention, which has none for what runs on a CPU."""

_WITHOUT_PRODUCTS = frozenset(
    """
    to_copy copy clone lift_fresh_copy cat stack embedding embedding_dense embedding_renorm index index_put
    index_put_impl unsafe_index unsafe_index_put gather scatter scatter_add scatter_reduce index_add index_copy
    index_fill index_select slice select diagonal slice_scatter select_scatter as_strided_scatter
    diagonal_scatter masked_scatter
    masked_select masked_fill where constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d repeat roll flip rot90 tril triu tril_indices triu_indices unfold
    unsafe_split unsafe_view unsafe_chunk split_with_sizes_copy view_copy reshape_copy resize resize_as set
    pin_memory detach alias item local_scalar_dense equal is_same_size nonzero unique2 unique_consecutive unique_dim
    repeat_interleave bincount histc bucketize searchsorted
    sum nansum mean amax amin max min any all argmax argmin topk sort argsort kthvalue median nanmedian mode cumsum
    cumprod cummax cummin cummax_helper cummin_helper logcumsumexp logsumexp var var_mean std std_mean norm
    linalg_vector_norm
    aminmax prod dist softmax safe_softmax softmax_backward_data log_softmax log_softmax_backward_data masked_softmax
    native_layer_norm fused_rms_norm native_group_norm native_batch_norm native_batch_norm_legit
    native_batch_norm_legit_no_training batch_norm_with_update batch_norm_no_update cudnn_batch_norm
    batch_norm_impl_index weight_norm_interface
    native_dropout bernoulli uniform normal exponential geometric log_normal cauchy random multinomial poisson
    randperm rand randn randint arange linspace logspace eye scalar_tensor
    nll_loss nll_loss_forward nll_loss2d nll_loss2d_forward mse_loss smooth_l1_loss huber_loss l1_loss
    binary_cross_entropy multi_margin_loss multilabel_margin_loss_forward multilabel_margin_loss soft_margin_loss
    ctc_loss max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d avg_pool2d avg_pool3d
    adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d
    fractional_max_pool2d fractional_max_pool3d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_nearest_exact1d upsample_nearest_exact2d
    upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_bilinear2d_aa upsample_bicubic2d
    upsample_bicubic2d_aa upsample_trilinear3d grid_sampler_2d grid_sampler_3d pixel_shuffle pixel_unshuffle
    channel_shuffle native_channel_shuffle im2col col2im embedding_bag embedding_bag_dense embedding_bag_forward_only
    thnn_fused_lstm_cell thnn_fused_lstm_cell_backward_impl thnn_fused_gru_cell amp_foreach_non_finite_check_and_unscale
    amp_update_scale fill zero empty zeros ones full empty_strided empty_like prelu_kernel glu rrelu_with_noise
    segment_reduce assert_async assert_scalar sym_constrain_range functional_assert_async convert_element_type
    convert_indices_from_csr_to_coo pack_padded_sequence
    """.split()
)
"""Operators whose names say that they move data, reduce, normalize, draw or compare: there is nothing to multiply."""
