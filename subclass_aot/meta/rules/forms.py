"""Replacements for operators whose schema hides a mutation or alias (`native_batch_norm`, conj bits, `lift_fresh`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.later import Registry
from subclass_aot.base.operators import PHYSICAL
from subclass_aot.errors import DataDependentError, TraceError
from subclass_aot.meta import places
from subclass_aot.meta.infer import forget_rules
from subclass_aot.meta.rules.ctc import CTC, ctc_loss
from subclass_aot.meta.rules.draws import DRAWS
from subclass_aot.meta.spec import STRIDED_NESTED, Spec
from subclass_aot.meta.storage import of_memory
from subclass_aot.meta.tensor import new_leaf


def form_of(func: Operator) -> Callable[..., Any] | None:
    """Returns a replacement for an operator whose schema hides what it does, or whose result is known; None for others.

    `native_batch_norm` updates its running statistics without saying so; a lazy conjugation or negation is a bit
    that a tensor without data cannot carry; `lift_fresh` gives out a literal that a program may write into. The zeros
    that forward mode begins with have no memory, which compiled kernels read. A boolean mask whose values are known
    stands for positions, so that the size of what it selects is known, too.
    """
    found = _FORMS.get(func)
    if found is None and func.namespace in forms_of:
        found = forms_of[func.namespace].get(func)
    return found


def put_forms(forms: Mapping[Any, Callable[..., Any]]) -> None:
    """Adds replacements, as those for tensors on some device. Where one returns `NotImplemented`, it does not apply."""
    _FORMS.update(forms)
    forget_rules()


forms_of: Registry[Mapping[Any, Callable[..., Any]]] = Registry("forms of")
"""By the namespace of a library, the replacements for its operators."""


def _conj(x: torch.Tensor | complex) -> Any:
    if isinstance(x, torch.Tensor):
        return _aten._conj_physical.default(x)
    return _aten.scalar_tensor.default(x.conjugate(), dtype=torch.complex128)  # a number that stands for a tensor


def _batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    x.size(1)  # kernels read it first, and so refuse a tensor with one dimension
    if mean is None:
        return _aten._native_batch_norm_legit.no_stats(x, weight, bias, training, momentum, eps)
    if training:
        return _aten._native_batch_norm_legit.default(x, weight, bias, mean, var, training, momentum, eps)
    return _aten._native_batch_norm_legit_no_training.default(x, weight, bias, mean, var, momentum, eps)


def _equal(x: torch.Tensor, y: torch.Tensor) -> bool:
    if x.dtype is not y.dtype:
        with _torch.dispatch.disable_current_modes():  # some kernels refuse
            torch.equal(torch.empty(0, dtype=x.dtype), torch.empty(0, dtype=y.dtype))
    return x.shape == y.shape and bool(x.eq(y).all())


def _allclose(
    x: torch.Tensor, y: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    return bool(torch.isclose(x, y, rtol, atol, equal_nan).all())


def _where(condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
    if condition.dtype is not torch.uint8:
        return NotImplemented
    return _aten.where.self(condition.bool(), x, y)  # as the kernel takes it, and compilers do not


_MASKS = (torch.bool, torch.uint8)
"""Dtypes of tensors that say which elements an index takes, and not where these are."""


def _index_put(
    put: Operator,
    x: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    *options: object,
    **named: object,
) -> Any:
    if not any(isinstance(i, torch.Tensor) and i.dtype is torch.uint8 for i in indices):
        return NotImplemented
    given = [i for i in indices if i is not None]
    if len(given) == 1 and values.numel() == 1:
        _aten.masked_fill.Tensor(x, given[0], values.reshape(()))  # which the kernel calls, and refuses
    masks = [i.bool() if i is not None and i.dtype is torch.uint8 else i for i in indices]
    return put(x, masks, values, *options, **named)


def _index(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    if not any(isinstance(i, torch.Tensor) and i.dtype in _MASKS for i in indices):
        return NotImplemented
    if _torch.autograd.skips_padding():
        return places.without_padding(x, indices[0])
    positions: list[Any] = []
    try:
        for i in indices:
            positions += i.nonzero().unbind(1) if i is not None and i.dtype in _MASKS else [i]
    except DataDependentError:
        return NotImplemented
    return _aten.index.Tensor(x, positions)


def _masked_select(x: torch.Tensor, mask: torch.Tensor) -> Any:
    x, mask = torch.broadcast_tensors(x, mask)
    return _index(x, [mask]) if x.dim() else _index(x.reshape(1), [mask.reshape(1)])


def _padded_to_jagged(dense: torch.Tensor, offsets: Sequence[torch.Tensor], total: int | None = None) -> Any:
    if total is not None:
        return NotImplemented
    (ends,) = offsets
    known = getattr(ends, "total", None)  # a trace knows it of the offsets of an input
    known = ends[-1].item() if known is None else known
    return _aten._padded_dense_to_jagged_forward.default(dense, offsets, known)


def _zeros(
    size: Sequence[Any],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Any:
    return _aten.zeros.default(size, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)


def set_to_memory(
    x: torch.Tensor,
    memory: torch.UntypedStorage,
    offset: int = 0,
    size: Sequence[int] | None = None,
    stride: Sequence[int] = (),
) -> torch.Tensor:
    """Does what `set_` does with a storage, by a flat tensor that has all of it."""
    flat = Spec.make((memory.nbytes() // x.dtype.itemsize,), (1,), 0, x.dtype, memory.device)
    storage = of_memory(memory, flat)
    if size is None:
        return _aten.set_.source_Tensor(x, new_leaf(flat, storage))  # type: ignore[no-any-return]
    spec = Spec.make(
        tuple(size), tuple(stride) or _torch.wrappers.contiguous_stride(tuple(size)), offset, x.dtype, flat.device
    )
    storage.make_room(spec, is_owner=False)
    set_to_memory(x, memory)
    return _aten.as_strided_.default(x, spec.size, spec.stride, offset)  # type: ignore[no-any-return]


def _polygamma_(x: torch.Tensor, n: int) -> torch.Tensor:
    """Writes what `polygamma` returns, whose arguments are in another order: torch knows no form without a write."""
    return x.copy_(_aten.polygamma.default(n, x))


def _strided_nested(*args: object, **kwargs: object) -> Any:
    raise TraceError(f"{STRIDED_NESTED}\n  Your line:  {user_line()}")


_aten = torch.ops.aten
_FORMS: dict[Any, Callable[..., Any]] = {
    **PHYSICAL,
    **DRAWS,
    _aten._conj.default: _conj,
    _aten.native_batch_norm.default: _batch_norm,
    _aten.lift_fresh.default: _aten.lift_fresh_copy.default,
    _aten._efficientzerotensor.default: _zeros,
    _aten.polygamma_.default: _polygamma_,
    _aten.allclose.default: _allclose,
    _aten.equal.default: _equal,
    _aten.index.Tensor: _index,
    **{func: partial(_index_put, func) for func in (_aten.index_put.default, _aten.index_put_.default)},
    _aten.where.self: _where,
    _aten._padded_dense_to_jagged_forward.default: _padded_to_jagged,
    _aten._nested_tensor_from_tensor_list.default: _strided_nested,
    _aten._nested_tensor_from_mask.default: _strided_nested,
    _aten._nested_tensor_from_mask_left_aligned.default: _strided_nested,
    _aten._nested_from_padded.default: _strided_nested,
    _aten._nested_view_from_buffer.default: _strided_nested,
    _aten.set_.source_Storage: set_to_memory,
    _aten.set_.source_Storage_storage_offset: set_to_memory,
    _aten.masked_select.default: _masked_select,
    _aten._sparse_coo_tensor_with_dims_and_tensors.default: places.sparse_tensor,
    _aten._embedding_bag_backward.default: places.bag_gradient,
}
BY_VALUES: dict[Any, Callable[..., Any]] = {_aten._pack_padded_sequence.default: places.pack_sequences, CTC: ctc_loss}
"""Forms of operators whose kernels want values of a tensor: those that a stream knows."""
