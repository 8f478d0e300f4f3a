"""Shape rules for operators that torch can run but has no meta kernel for, or one that tells something else.

Each was checked against the operator's own results. A rule receives tensors without data and returns such tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.meta.infer import looks_at_device, register_meta

Tensor = torch.Tensor
_aten = torch.ops.aten

looks_at_device.update(
    {
        _aten._embedding_bag.default,
        _aten._embedding_bag_forward_only.default,
        _aten._fft_c2r.default,
        _aten._fft_r2c.default,
        _aten._linalg_svd.default,
        _aten.channel_shuffle.default,
        _aten.convolution.default,
        _aten.convolution_backward.default,
        _aten.linalg_eig.default,
        _aten.max_unpool2d.default,
        _aten.nonzero_static.default,
        _aten.pixel_shuffle.default,
        _aten.replication_pad2d.default,
        _aten.replication_pad2d_backward.default,
    }
)


@register_meta(_aten.channel_shuffle.default)
def _(self: Tensor, groups: int) -> Tensor:
    return _laid_out_as(self, self)


@register_meta(_aten.max_unpool2d.default)
def _(self: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    return _laid_out_as(self, self.new_empty([*self.shape[:-2], *output_size]))


@register_meta(_aten.pow.Scalar)
def _(self: Any, exponent: Tensor) -> Tensor:
    return exponent.new_empty(exponent.shape, dtype=torch.result_type(self, exponent))


@register_meta(_aten.replication_pad2d_backward.default)
def _(grad_output: Tensor, self: Tensor, padding: Sequence[int]) -> Tensor:
    return _laid_out_as(self, self)


@register_meta(_aten.multi_margin_loss_backward.default)
def _(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    p: Any,
    margin: Any,
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


@register_meta(_aten._ctc_loss_backward)
def _(grad: Tensor, log_probs: Tensor, *lengths_and_options: Any, **kwargs: Any) -> Tensor:
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


def _packed_like(x: Tensor) -> Tensor:
    """A row-major tensor with the size of `x`."""
    return x.new_empty(x.shape)


def _laid_out_as(x: Tensor, result: Tensor) -> Tensor:
    """A row-major `result`, or a channels-last one where `x` is, on CPU."""
    packed = result.new_empty(result.shape)
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if layout is None or x.device.type != "cpu" or x.is_contiguous() or not x.is_contiguous(memory_format=layout):
        return packed
    return packed.to(memory_format=layout)


def _with_first_laid_out(func: Any, position: int) -> Callable[..., Any]:
    """Torch's rule, whose first result keeps any strides on CPU, where the kernel knows two layouts only."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        first, *others = func(*args, **kwargs)
        x = args[position]
        return (_laid_out_as(x, first) if first is not None and x.device.type == "cpu" else first, *others)

    return rule


for _func, _position in (
    (_aten._native_batch_norm_legit.default, 0),
    (_aten._native_batch_norm_legit.no_stats, 0),
    (_aten._native_batch_norm_legit_functional.default, 0),
    (_aten._native_batch_norm_legit_no_training.default, 0),
    (_aten.native_batch_norm_backward.default, 1),
):
    looks_at_device.add(_func)
    register_meta(_func)(_with_first_laid_out(_func, _position))
