"""Rules for operators whose results on CPU look otherwise than torch's meta kernels tell.

A meta kernel that asks for the device is told `meta`, and answers for CUDA; some ask nobody. A wrong stride goes
unnoticed until a view of the result fails, or a wrapper tells its outer strides. Each rule was checked against the
operator itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree
import torch

from subclass_aot import _torch
from subclass_aot._torch import Operator
from subclass_aot.meta.infer import register_meta, result_device

Tensor = torch.Tensor
_aten = torch.ops.aten


@register_meta(_aten.angle.default)
def _(self: Tensor) -> Tensor:
    # Of complex numbers it is the real part of something, copied.
    return self.new_empty(self.shape, dtype=self.dtype.to_real()) if self.is_complex() else self.sin()


@register_meta(_aten.pow.Scalar)
def _(self: Any, exponent: Tensor) -> Tensor:
    return exponent.new_empty(exponent.shape, dtype=torch.result_type(self, exponent))


@register_meta(_aten.mse_loss_backward.default)
@register_meta(_aten.smooth_l1_loss_backward.default)
@register_meta(_aten.huber_loss_backward.default)
def _(grad_output: Tensor, self: Tensor, target: Tensor, *options: object) -> Tensor:
    return self.new_empty(self.shape)


@register_meta(_aten.binary_cross_entropy_backward.default)
def _(grad_output: Tensor, self: Tensor, target: Tensor, *options: object) -> Tensor:
    return torch.empty_like(self)


@register_meta(_aten.native_dropout_backward.default)
def _(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    return grad_output * mask * scale if _on_cpu() else grad_output.new_empty(grad_output.shape)


@register_meta(_aten.view_copy.default)
def _(self: Tensor, size: Sequence[int]) -> Tensor:
    return self.new_empty(self.reshape(size).shape)


@register_meta(_aten._grouped_mm.default)
def _(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    # Torch's own asks for bfloat16, which only the kernel for CUDA does. Rows begin at multiples of 16 bytes.
    rows, columns = self.shape[-2], mat2.shape[-1]
    if self.dim() == mat2.dim() == 2:
        assert offs is not None, "the kernel refuses two matrices without offsets"
        groups = [offs.shape[0]]
    else:
        groups = [self.shape[0]] if self.dim() == mat2.dim() else []
    dtype = self.dtype if out_dtype is None else out_dtype
    step = 16 // dtype.itemsize
    width = (columns + step - 1) // step * step
    size = [*groups, rows, columns]
    return self.new_empty_strided(size, [rows * width, width, 1][-len(size) :], dtype=dtype)


def _row_major(func: Operator) -> None:
    def rule(*args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = func(*args, **kwargs)
        return result.new_empty(result.shape)

    register_meta(func)(rule)


for _func in (_aten.normal.Tensor_float, _aten.normal.float_Tensor, _aten.normal.Tensor_Tensor):
    _row_major(_func)


@register_meta(_aten.nonzero_static.default)
def _(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    result = self.new_empty([size, self.dim()], dtype=torch.int64)
    return result if _on_cpu() else _column_major(result)


@register_meta(_aten.linalg_eig.default)
def _(self: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = _aten.linalg_eig.default(self)
    return values, _column_major(vectors) if _on_cpu() else vectors


@register_meta(_aten._linalg_svd.default)
def _(A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    u, s, vh = _aten._linalg_svd.default(A, full_matrices, compute_uv, driver=driver)
    return u, s, _column_major(vh) if _on_cpu() and compute_uv else vh


@register_meta(_aten._fft_r2c.default)
def _(self: Tensor, dim: list[int], normalization: int, onesided: bool) -> Tensor:
    result = _aten._fft_r2c.default(self, dim, normalization, onesided)
    return _laid_out_by_fft(result, [*_as_in_memory(self, dim[:-1]), dim[-1]], self)  # the last one may be halved


@register_meta(_aten._fft_c2c.default)
def _(self: Tensor, dim: list[int], normalization: int, forward: bool) -> Tensor:
    return _laid_out_by_fft(_aten._fft_c2c.default(self, dim, normalization, forward), _as_in_memory(self, dim), self)


@register_meta(_aten._fft_c2r.default)
def _(self: Tensor, dim: list[int], normalization: int, last_dim_size: int) -> Tensor:
    """The last dim is transformed on its own, after the others."""
    between = _laid_out_by_fft(self, _as_in_memory(self, dim[:-1]), self)
    return _laid_out_by_fft(_aten._fft_c2r.default(self, dim, normalization, last_dim_size), dim[-1:], between)


def _laid_out_by_fft(result: Tensor, dims: list[int], x: Tensor) -> Tensor:
    """The result as the CPU's library for FFT writes it: dims that are not transformed first, as they lie in `x`."""
    if not (dims and _on_cpu() and torch.backends.mkl.is_available()):
        return result
    dims = [d % x.dim() for d in dims]
    order = [*_as_in_memory(x, [d for d in range(x.dim()) if d not in dims]), *dims]
    back = sorted(range(len(order)), key=order.__getitem__)
    return result.new_empty([result.shape[d] for d in order]).permute(back)


def _keeps_layout(func: Operator, position: int = 0) -> None:
    """The first result is channels-last where the argument at `position` is, and row-major otherwise, on CPU."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if not _on_cpu():
            return result
        if isinstance(result, Tensor):
            return _laid_out_as(args[position], result)
        first, *others = result
        return (None if first is None else _laid_out_as(args[position], first), *others)

    register_meta(func)(rule)


for _func in (
    _aten._batch_norm_with_update.default,
    _aten._native_batch_norm_legit.no_stats,
    _aten.channel_shuffle.default,
    _aten.max_unpool2d.default,
    _aten.pixel_shuffle.default,
    _aten.replication_pad2d.default,
):
    _keeps_layout(_func)
_keeps_layout(_aten.native_batch_norm_backward.default, position=1)
_keeps_layout(_aten.replication_pad2d_backward.default, position=1)


def _keeps_layout_and_no_statistics(func: Operator) -> None:
    """As `_keeps_layout`; a batch norm that does not train has nothing to save, on CPU."""

    def rule(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        result, mean, inverse, *others = func(x, *args, **kwargs)
        if not _on_cpu():
            return result, mean, inverse, *others
        training = len(args) == 7 and args[4]
        if not training:
            mean, inverse = mean.new_empty(0), inverse.new_empty(0)
        return _laid_out_as(x, result), mean, inverse, *others

    register_meta(func)(rule)


for _func in (
    _aten.native_batch_norm.default,
    _aten._native_batch_norm_legit.default,
    _aten._native_batch_norm_legit_functional.default,
    _aten._native_batch_norm_legit_no_training.default,
):
    _keeps_layout_and_no_statistics(_func)


def _asks_for_device(func: Operator, when: Callable[..., bool] = lambda *args, **kwargs: True) -> None:
    """Torch's own rule is right if the tensors it is given say `cpu`: fake tensors do, meta tensors do not."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        if _on_cpu() and when(*args):
            tree: Any = optree.tree_map(_fake, (args, kwargs), none_is_leaf=True)  # type: ignore[arg-type]
            args, kwargs = tree
        return func(*args, **kwargs)

    register_meta(func)(rule)


_asks_for_device(_aten._embedding_bag.default)
_asks_for_device(_aten._embedding_bag_forward_only.default)
# Fake tensors are slow to begin with: torch imports its compiler for them.
_asks_for_device(_aten.convolution.default, lambda x, weight, *rest: not (x.is_contiguous() and weight.is_contiguous()))
_asks_for_device(
    _aten.convolution_backward.default,
    lambda gradient, x, weight, *rest: not (x.is_contiguous() and weight.is_contiguous()),
)


def _on_cpu() -> bool:
    return result_device().type == "cpu"


def _fake(x: object) -> Any:
    return _torch.fake_on_cpu(x) if isinstance(x, Tensor) else x


def _as_in_memory(x: Tensor, dims: list[int]) -> list[int]:
    return sorted(dims, key=lambda d: x.stride(d), reverse=True)


def _column_major(x: Tensor) -> Tensor:
    return x.mT.new_empty(x.mT.shape).mT


def _laid_out_as(x: Tensor, result: Tensor) -> Tensor:
    packed = result.new_empty(result.shape)
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if layout is None or not _torch.looks_channels_last(x):
        return packed
    return packed.to(memory_format=layout)
