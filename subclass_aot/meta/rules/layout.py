"""Rules for operators whose results on CPU have other strides than those of torch's meta kernels.

A meta kernel that reads the device gets `meta`, and answers for CUDA; some read nothing. A wrong stride goes
unnoticed until a view of the result fails, a wrapper gives its outer strides, or a kernel takes two tensors to have one
layout. Each rule was checked against the operator itself.

Most kernels lay out their results in one of few ways, which are `Law`s here. `elementwise.py` has that of most
operators that torch calls elementwise; those that are among the rules here are the exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.meta import strides
from subclass_aot.meta.infer import corrects, register_meta, result_device
from subclass_aot.meta.rules.elementwise import iterated
from subclass_aot.meta.strides import Strides

Tensor = torch.Tensor
_aten = torch.ops.aten

Law = Callable[..., Strides]
"""From a result, and then the arguments of the operator, to the strides of that result."""


def _packed(result: Tensor, *args: Any) -> Strides:
    return strides.packed(result.shape)


def _like(position: int) -> Law:
    """Returns a law: the result is laid out as an argument of this size, where its elements fill a range of memory."""

    def law(result: Tensor, *args: Any) -> Strides:
        return strides.preserved(args[position]) if args[position].shape == result.shape else tuple(result.stride())

    return law


def _suggested(position: int) -> Law:
    """Returns a law: the result has the memory format that an argument suggests."""
    return lambda result, *args: strides.suggested(args[position], result.shape)


def _padded(position: int) -> Law:
    """Returns a law: likewise; without elements the result is packed."""

    def law(result: Tensor, *args: Any) -> Strides:
        is_empty = any(type(n) is int and n == 0 for n in args[position].shape)
        return strides.packed(result.shape) if is_empty else strides.suggested(args[position], result.shape)

    return law


def _iterated(*positions: int) -> Law:
    """Returns a law: the result is laid out as what is computed elementwise of these arguments; a loss may be
    summed up.
    """

    def law(result: Tensor, *args: Any) -> Strides:
        operands = [args[i] for i in positions]
        return iterated(result.shape, operands) if result.dim() >= operands[0].dim() else ()

    return law


def _follow(law: Law, *funcs: Operator, on_each_device: bool = False) -> None:
    """Declares how operators lay out their results.

    Args:
        law: How. Of several results, those of other sizes than the first are left alone.
        *funcs: The operators.
        on_each_device: Whether kernels of other devices than the CPU do so, too.
    """

    @corrects(*funcs, on_each_device=on_each_device)
    def _(found: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("memory_format") not in (None, torch.preserve_format):
            return found
        if isinstance(found, Tensor):
            return _laid_out(found, law, args)
        shape = next((x.shape for x in found if x is not None), None)
        return tuple(x if x is None or x.shape != shape else _laid_out(x, law, args) for x in found)


def _laid_out(result: Tensor, law: Law, args: Sequence[Any]) -> Tensor:
    try:
        found = law(result, *args)
    except strides.Unknown:
        return result
    return result if found == tuple(result.stride()) else result.new_empty_strided(result.shape, found)


_follow(
    _packed,
    _aten.col2im.default,
    _aten.diag_embed.default,
    _aten.glu_backward.default,
    _aten.grid_sampler_2d.default,
    _aten.index_add.default,
    _aten.index_copy.default,
    _aten.isin.Tensor_Tensor,
    _aten.linalg_vector_norm.default,
    _aten._log_softmax.default,
    _aten._log_softmax_backward_data.default,
    _aten.masked_fill.Scalar,
    _aten.masked_fill.Tensor,
    _aten.mvlgamma.default,
    _aten.norm.ScalarOpt_dim,
    _aten.normal.float_Tensor,
    _aten.normal.Tensor_float,
    _aten.normal.Tensor_Tensor,
    _aten.poisson.default,
    _aten.renorm.default,
    _aten.rrelu_with_noise.default,
    _aten._softmax_backward_data.default,
    _aten._standard_gamma.default,
    _aten.tril.default,
    _aten.triu.default,
)
_follow(
    _like(0),
    *(getattr(_aten.randint_like, name) for name in _aten.randint_like.overloads() if "out" not in name),
    _aten.empty_like.default,
    _aten.full_like.default,
    _aten.ones_like.default,
    _aten.rand_like.default,
    _aten.randn_like.default,
    _aten.zeros_like.default,
    on_each_device=True,
)
_follow(
    _like(0),
    _aten.argsort.default,
    _aten.binary_cross_entropy.default,
    _aten._conj_physical.default,
    _aten.deg2rad.default,
    _aten.fill.Scalar,
    _aten.fill.Tensor,
    _aten.flip.default,
    _aten.frexp.Tensor,
    _aten.hardtanh.default,
    _aten.huber_loss.default,
    _aten.index_put.default,
    _aten.log_sigmoid_backward.default,
    _aten.nan_to_num.default,
    _aten._prelu_kernel.default,
    _aten.rad2deg.default,
    _aten.relu6.default,
    _aten.sort.default,
    _aten.sort.stable,
    _aten._unsafe_masked_index_put_accumulate.default,
    _aten.zero.default,
)
_follow(_like(1), _aten.binary_cross_entropy_backward.default)
_follow(
    _suggested(0),
    _aten.channel_shuffle.default,
    _aten.max_unpool2d.default,
    _aten.native_channel_shuffle.default,
    _aten.pixel_shuffle.default,
)
_follow(
    _padded(0),
    _aten.reflection_pad2d.default,
    _aten.reflection_pad3d.default,
    _aten.replication_pad2d.default,
    _aten.replication_pad3d.default,
)
_follow(
    _suggested(0),
    _aten.upsample_bicubic2d.default,
    _aten.upsample_bilinear2d.default,
    _aten.upsample_nearest2d.default,
    _aten.upsample_nearest3d.default,
    _aten.upsample_trilinear3d.default,
    on_each_device=True,
)
_follow(
    _padded(1),
    _aten.reflection_pad2d_backward.default,
    _aten.reflection_pad3d_backward.default,
    _aten.replication_pad2d_backward.default,
    _aten.replication_pad3d_backward.default,
)
_follow(_iterated(0), _aten.soft_margin_loss.default)
_follow(
    _iterated(0, 1),
    _aten.complex.default,
    _aten.mse_loss.default,
    _aten.native_dropout_backward.default,
    _aten.polar.default,
    _aten.smooth_l1_loss.default,
)
_follow(_iterated(1), _aten.polygamma.default)
_follow(_iterated(1, 0), _aten.rsub.Tensor)
_follow(_iterated(1, 2, 0), _aten._prelu_kernel_backward.default)
"""The operators, by the way in which their kernels choose strides."""


@corrects(_aten.abs.default)
def _(found: Tensor, self: Tensor) -> Tensor:
    return _laid_out(found, _like(0) if self.is_complex() else _iterated(0), [self])


@corrects(_aten.isinf.default, _aten.isfinite.default)
def _(found: Tensor, self: Tensor) -> Tensor:
    is_known = not self.is_floating_point() and not self.is_complex()
    if self.is_complex():  # each part by itself
        self = self.new_empty_strided(self.shape, [2 * step for step in self.stride()], dtype=self.dtype.to_real())
    return _laid_out(found, _like(0) if is_known else _iterated(0), [self])


@corrects(_aten.log_sigmoid_forward.default, on_each_device=True)
def _(found: tuple[Tensor, Tensor], self: Tensor) -> tuple[Tensor, Tensor]:
    result, saved = found
    device = result_device().type
    if device == "cpu":
        return _laid_out(result, _packed, [self]), _laid_out(saved, _packed, [self])
    return result, self.new_empty(0) if device == "cuda" else saved  # backward on CUDA computes it again


@corrects(_aten._weight_norm_interface.default)
def _(found: Any, v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    precise = torch.float32 if g.dtype in (torch.bfloat16, torch.float16) else g.dtype
    return v.new_empty(v.shape), g.new_empty(g.shape, dtype=precise)


@register_meta(_aten.angle.default)
def _(self: Tensor) -> Tensor:
    # Of complex numbers it is the real part of something, copied.
    if self.is_complex():
        return self.new_empty(self.shape, dtype=self.dtype.to_real())
    return _laid_out(self.sin(), _iterated(0), [self])


@corrects(_aten.native_dropout.default)
def _(found: Any, input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    result, mask = found
    return _laid_out(result, _iterated(0), [input]), _laid_out(mask, _like(0), [input])


@corrects(_aten.index.Tensor, _aten._unsafe_index.Tensor)
def _(result: Tensor, self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Returns the result as the kernel iterates over `self`, with as many indexed dims as the indices have, of
    stride 0.
    """
    if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
        return result
    indexed = [dim for dim, i in enumerate(indices) if i is not None]
    shape = torch.broadcast_shapes(*(i.shape for i in indices if i is not None))
    if indexed != list(range(indexed[0], indexed[-1] + 1)):  # then they come first
        self = self.permute([*indexed, *(d for d in range(self.dim()) if d not in indexed)])
        indexed = list(range(len(indexed)))
    before, after = indexed[0], self.dim() - indexed[-1] - 1
    stride = (*self.stride()[:before], *[0] * len(shape), *self.stride()[self.dim() - after :])
    operands = [self.new_empty_strided(result.shape, stride)]
    operands += [i.expand(shape).reshape([*[1] * before, *shape, *[1] * after]) for i in indices if i is not None]
    return _laid_out(result, lambda result, *operands: iterated(result.shape, operands), operands)


@corrects(_aten.ldexp.Tensor)
def _(found: Tensor, self: Tensor, other: Tensor) -> Tensor:
    factor = other.new_empty(other.shape) if other.is_floating_point() else other  # a power of 2 is packed
    return _laid_out(found, _iterated(0, 1), [self, factor])


@register_meta(_aten.pow.Scalar)
def _(self: Any, exponent: Tensor) -> Tensor:
    return exponent.new_empty(exponent.shape, dtype=torch.result_type(self, exponent))


@register_meta(_aten.mse_loss_backward.default)
@register_meta(_aten.smooth_l1_loss_backward.default)
@register_meta(_aten.huber_loss_backward.default)
def _(grad_output: Tensor, self: Tensor, target: Tensor, *options: object) -> Tensor:
    return self.new_empty(self.shape)


def _soft_margin_loss_backward(result: Tensor, gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Strides:
    negated = _laid_out(torch.empty_like(target), _iterated(0), [target])
    return iterated(result.shape, [negated, _laid_out(torch.empty_like(target), _iterated(0, 1), [negated, x])])


_follow(_soft_margin_loss_backward, _aten.soft_margin_loss_backward.default)


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
    # Torch's own wants bfloat16, which only the kernel for CUDA does. Rows begin at multiples of 16 bytes.
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
    if not _on_cpu():
        found: Tensor = _aten._fft_r2c.default(self, dim, normalization, onesided)
        return found
    _refuse_unless(self.dtype.is_floating_point, "real numbers")
    result = _unlaid(self, dim[-1], self.shape[dim[-1]] // 2 + 1 if onesided else None, self.dtype.to_complex())
    return _laid_out_by_fft(result, [*_as_in_memory(self, dim[:-1]), dim[-1]], self)  # the last one may be halved


@register_meta(_aten._fft_c2c.default)
def _(self: Tensor, dim: list[int], normalization: int, forward: bool) -> Tensor:
    if not (dim and _on_cpu()):
        found: Tensor = _aten._fft_c2c.default(self, dim, normalization, forward)
        return found
    _refuse_unless(self.dtype.is_complex, "complex numbers")
    return _laid_out_by_fft(self.new_empty(self.shape), _as_in_memory(self, dim), self)


@register_meta(_aten._fft_c2r.default)
def _(self: Tensor, dim: list[int], normalization: int, last_dim_size: int) -> Tensor:
    """Returns the result of a transform whose last dim is transformed on its own, after the others."""
    if not _on_cpu():
        found: Tensor = _aten._fft_c2r.default(self, dim, normalization, last_dim_size)
        return found
    _refuse_unless(self.dtype.is_complex, "complex numbers")
    between = _laid_out_by_fft(self, _as_in_memory(self, dim[:-1]), self)
    return _laid_out_by_fft(_unlaid(self, dim[-1], last_dim_size, self.dtype.to_real()), dim[-1:], between)


def _refuse_unless(fits: bool, wanted: str) -> None:
    if not fits:
        raise RuntimeError(f"a transform of Fourier of this kind takes {wanted}")


def _unlaid(x: Tensor, dim: int, length: int | None, dtype: torch.dtype) -> Tensor:
    """Returns a result of a transform, packed. Torch's rules resize one, which fails with some symbolic sizes.

    Args:
        x: What is transformed.
        dim: The dim that may get another length.
        length: That length; None if it stays.
        dtype: The dtype of the result.
    """
    size = list(x.shape)
    size[dim] = size[dim] if length is None else length
    return x.new_empty(size, dtype=dtype)


def _laid_out_by_fft(result: Tensor, dims: list[int], x: Tensor) -> Tensor:
    """Returns the result as the CPU's library for FFT writes it: dims that are not transformed first, as they lie
    in `x`.
    """
    if not (dims and torch.backends.mkl.is_available()):
        return result
    dims = [d % x.dim() for d in dims]
    order = [*_as_in_memory(x, _others_as_partitioned(x.dim(), dims)), *dims]
    back = sorted(range(len(order)), key=order.__getitem__)
    return result.new_empty([result.shape[d] for d in order]).permute(back)


def _others_as_partitioned(count: int, dims: list[int]) -> list[int]:
    """Returns all other dims, in the order in which `std::partition` leaves them: it swaps from both ends."""
    order = list(range(count))
    first, last = 0, count
    while first < last:
        if order[first] not in dims:
            first += 1
            continue
        last -= 1
        if order[last] not in dims:
            order[first], order[last] = order[last], order[first]
            first += 1
    return order[:first]


@corrects(_aten.rrelu_with_noise_backward.default)
def _(
    found: Tensor, gradient: Tensor, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, *_: bool
) -> Tensor:
    return _laid_out(found, _iterated(0, 1), [noise if training and upper - lower > 1e-6 else x, gradient])


@corrects(_aten.expand.default, on_each_device=True)
def _(found: Tensor, self: Tensor, size: Sequence[Any], *, implicit: bool = False) -> Tensor:
    """Returns a number expanded with steps of 0, to one place, too; torch's rule for symbols has 1 there."""
    return found if self.dim() or not found.dim() else found.as_strided(found.shape, [0] * found.dim())


@corrects(_aten.constant_pad_nd.default, on_each_device=True)
def _(found: Tensor, self: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    """Returns the result, a clone of a part where nothing is added in any dim; torch's rule for symbols wants less."""
    if not all(_is_cut(p) for p in pad):
        return found
    part = self.as_strided(found.shape, self.stride())
    try:
        return part.new_empty_strided(part.shape, strides.preserved(part))
    except strides.Unknown:
        return part.clone()  # torch's own asks what it must know


def _is_cut(pad: Any) -> bool:
    if isinstance(pad, torch.SymInt) and not _torch.symbolic.has_example(pad):
        return _torch.symbolic.statically_known_true(pad <= 0)
    return bool(pad <= 0)


@corrects(_aten.glu.default)
def _(found: Tensor, self: Tensor, dim: int = -1) -> Tensor:
    return _laid_out(found, _iterated(0, 1), self.chunk(2, dim))


@corrects(_aten.roll.default)
def _(found: Tensor, self: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    if not dims or any(type(size) is int and size == 0 for size in self.shape):
        return found
    for shift, dim in zip(shifts, dims, strict=True):
        size = self.shape[dim]
        start = (size - shift) % size
        self = _aten.cat.default([self.narrow(dim, start, size - start), self.narrow(dim, 0, start)], dim)
    return self


@corrects(_aten.rot90.default)
def _(found: Tensor, self: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    if k % 4 == 0:
        return self.clone(memory_format=torch.contiguous_format)
    flipped = _laid_out(torch.empty_like(self), _like(0), [self])
    return flipped if k % 4 == 2 else flipped.transpose(*dims)


def _embedding_bag(func: Operator) -> None:
    """Registers torch's own rule with tensors that say `cpu`, as fake tensors do; kernels treat bfloat16 as half
    precision.
    """

    def rule(weight: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not _on_cpu():
            return func(weight, *args, **kwargs)
        given = weight.half() if weight.dtype is torch.bfloat16 else weight
        tree: Any = optree.tree_map(_fake, ((given, *args), kwargs), none_is_leaf=True)  # type: ignore[arg-type]
        args, kwargs = tree
        result, *others = func(*args, **kwargs)
        return result.to(weight.dtype), *others

    register_meta(func)(rule)


_embedding_bag(_aten._embedding_bag.default)
_embedding_bag(_aten._embedding_bag_forward_only.default)


def _on_cpu() -> bool:
    return result_device().type == "cpu"


def _fake(x: object) -> Any:
    return _torch.inductor.fake_on_cpu(x) if isinstance(x, Tensor) else x


def _as_in_memory(x: Tensor, dims: list[int]) -> list[int]:
    return sorted(dims, key=lambda d: x.stride(d), reverse=True)


def _column_major(x: Tensor) -> Tensor:
    return x.mT.new_empty(x.mT.shape).mT
