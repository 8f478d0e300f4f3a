"""Shape rules for operators that torch can run but has no meta kernel for.

Each was checked against the operator's own results. A rule receives tensors without data and returns such tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from subclass_aot.base._torch.operators import Operator
from subclass_aot.meta import strides
from subclass_aot.meta.infer import register_meta
from subclass_aot.meta.spec import Spec

Tensor = torch.Tensor
_aten = torch.ops.aten


@register_meta(_aten.unbind.int)
def _(self: Tensor, dim: int = 0) -> list[Tensor]:
    # Torch's own, for symbolic sizes, splits and then squeezes what it does not know to be one.
    return [self.select(dim, i) for i in range(self.shape[dim])]


@register_meta(_aten.as_strided_.default)
def _(self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    # It may reach out of the tensor, into its storage; of that, a tensor without data has as much as its elements take.
    offset = self.storage_offset() if storage_offset is None else storage_offset
    extent = offset + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return self.new_empty(extent).as_strided(size, stride, offset)


@register_meta(_aten.as_strided_copy.default)
def _(self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    return self.new_empty(size)  # likewise


@register_meta(_aten.as_strided_scatter.default)
def _(
    self: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    if tuple(src.shape) != tuple(size):
        raise RuntimeError(f"as_strided_scatter: src has the size {list(src.shape)}, the part has {list(size)}")
    spec = Spec.of(self)
    if spec.is_expanded:
        return torch.empty_like(self)
    return self.new_empty(spec.extent).as_strided(spec.size, spec.stride, spec.offset)


@register_meta(_aten.multi_margin_loss_backward.default)
def _(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    p: float,
    margin: float,
    weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    return _packed_like(self)


@register_meta(_aten.multilabel_margin_loss_backward.default)
def _(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, is_target: Tensor) -> Tensor:
    return _packed_like(self)


@register_meta(_aten.fractional_max_pool3d_backward.default)
def _(
    grad_output: Tensor, self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], indices: Tensor
) -> Tensor:
    return _packed_like(self)


@register_meta(_aten._ctc_loss.default)
def _(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,
) -> Any:
    if not any(isinstance(n, torch.SymInt) for n in (*log_probs.shape, *targets.shape)):
        return _aten._ctc_loss.default(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    time, batch = log_probs.shape[0], len(input_lengths)  # torch's own wants sizes that are no symbols
    if log_probs.shape[1] != batch:
        raise RuntimeError(f"ctc_loss: lengths of {batch}, and log_probs has another batch")
    return log_probs.new_empty([batch]), log_probs.new_empty([batch, time, 2 * max(target_lengths, default=0) + 1])


@register_meta(_aten._ctc_loss_backward)
def _(grad: Tensor, log_probs: Tensor, *lengths_and_options: object, **kwargs: object) -> Tensor:
    return _packed_like(log_probs)


@register_meta(_aten.geqrf.default)
def _(self: Tensor) -> tuple[Tensor, Tensor]:
    *batch, rows, columns = self.shape
    # LAPACK writes columns one after the other.
    packed = self.new_empty([*batch, columns, rows]).transpose(-2, -1)
    return packed, self.new_empty([*batch, min(rows, columns)])


@register_meta(_aten.histogram.bin_ct)
def _(
    self: Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    return self.new_empty([bins]), self.new_empty([bins + 1])


@register_meta(_aten.histogram.bins_tensor)
def _(self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False) -> tuple[Tensor, Tensor]:
    return self.new_empty([bins.numel() - 1]), _packed_like(bins)


@register_meta(_aten._histogramdd_bin_edges.default)
def _(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> list[Tensor]:
    return [self.new_empty([count + 1]) for count in bins]


@register_meta(_aten._histogramdd_from_bin_cts.default)
def _(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    return self.new_empty(list(bins))


@register_meta(_aten._histogramdd_from_bin_tensors.default)
def _(self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False) -> Tensor:
    return self.new_empty([edges.numel() - 1 for edges in bins])


@register_meta(_aten._padded_dense_to_jagged_forward.default)
def _(dense: Tensor, offsets: Sequence[Tensor], total_L: Any = None) -> Tensor:
    return dense.new_empty([total_L, *dense.shape[2:]])


@register_meta(_aten._foreach_addcdiv_.Tensor)
@register_meta(_aten._foreach_addcmul_.Tensor)
def _(self: Sequence[Tensor], tensor1: Sequence[Tensor], tensor2: Sequence[Tensor], scalars: Tensor) -> None:
    return None  # torch's own reads the scalars


@register_meta(_aten._scaled_mm.default)
def _(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    # Torch's own checks what accelerators want, multiples of 16. On the CPU the kernel takes all sizes.
    if self.dim() != 2 or mat2.dim() != 2 or self.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({list(self.shape)} and {list(mat2.shape)})")
    return self.new_empty([self.shape[0], mat2.shape[1]], dtype=out_dtype or self.dtype)


@register_meta(_aten._transformer_encoder_layer_fwd.default)
def _(src: Tensor, *args: object, **kwargs: object) -> Tensor:
    return _packed_like(src)


@register_meta(_aten._native_multi_head_attention.default)
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    batch, length, _ = query.shape
    heads = [] if average_attn_weights else [num_head]
    weights = query.new_empty([batch, *heads, length, key.shape[1]]) if need_weights else None
    return _packed_like(query), weights


@register_meta(_aten.binomial.default)
def _(count: Tensor, prob: Tensor, generator: object = None) -> Tensor:
    return _packed_like(count)


@register_meta(_aten._sample_dirichlet.default)
def _(self: Tensor, generator: object = None) -> Tensor:
    return _packed_like(self)


@register_meta(_aten._dirichlet_grad.default)
def _(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    return _packed_like(x)


@register_meta(_aten._standard_gamma_grad.default)
def _(self: Tensor, output: Tensor) -> Tensor:
    return _packed_like(self)


@register_meta(_aten._masked_softmax.default)
def _(self: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Tensor:
    return torch.empty_strided(self.shape, strides.preserved(self), dtype=self.dtype, device=self.device)


@register_meta(_aten._masked_softmax_backward.default)
def _(grad_output: Tensor, output: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    return _packed_like(grad_output)


@register_meta(_aten.batch_norm_update_stats.default)
def _(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float) -> tuple[Tensor, Tensor]:
    return input.new_empty([input.shape[1]]), input.new_empty([input.shape[1]])


@register_meta(_aten.glu_jvp.default)
def _(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Tensor:
    return torch.add(glu, glu)


@register_meta(_aten.glu_backward_jvp.default)
def _(grad_x: Tensor, grad_glu: Tensor, x: Tensor, dgrad_glu: Tensor, dx: Tensor, dim: int) -> Tensor:
    return torch.cat([grad_glu, grad_glu], dim)


@register_meta(_aten._transform_bias_rescale_qkv.default)
def _(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    batch, length, width = qkv.shape
    part = [batch, num_heads, length, width // 3 // num_heads]
    whole = qkv.new_empty([3, *part])
    return whole[0], whole[1], whole[2]


def _refuse_dtypes_of_argmax(operator: Operator, name: str) -> None:
    """Registers what checks the dtype, which torch does in its kernels and not in its shape function."""

    @register_meta(operator)
    def _(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if self.dtype is torch.bool or self.dtype.is_complex:
            kind = "bool" if self.dtype is torch.bool else "complex"
            raise RuntimeError(f"{name}(): does not support {kind} input")
        position: Tensor = operator(self, dim, keepdim)
        return position


_refuse_dtypes_of_argmax(_aten.argmax.default, "argmax")
_refuse_dtypes_of_argmax(_aten.argmin.default, "argmin")


def _packed_like(x: Tensor) -> Tensor:
    """Returns a row-major tensor with the size of `x`."""
    return x.new_empty(x.shape)


@register_meta(_aten._use_cudnn_ctc_loss.default)
@register_meta(_aten._use_cudnn_ctc_loss.Tensor)
@register_meta(_aten._use_miopen_ctc_loss.default)
@register_meta(_aten._use_miopen_ctc_loss.Tensor)
def _(*args: object) -> bool:
    # Whether cuDNN or MIOpen takes them depends on the lengths. The kernel that takes all has the same results up to
    # rounding.
    return False


@register_meta(_aten._pin_memory.default)
def _(self: Tensor, device: torch.device | None = None) -> Tensor:
    return self.new_empty_strided(self.shape, self.stride())
