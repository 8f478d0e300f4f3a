"""Sparse gradients, such as those of `nn.Embedding(sparse=True)`, as wrappers of their dense indices and values.

Note [Sparse gradients]
~~~~~~~~~~~~~~~~~~~~~~~
A graph has dense tensors only, and a sparse tensor is two of them. So where autograd makes one of traced indices and
values, it is a wrapper of these, and goes the way of all wrappers: the graph returns indices and values, and what
puts a gradient together at a call (`__tensor_unflatten__`) makes a sparse tensor of them. What autograd and optimizers
do with gradients has a rule; anything else is refused by name, since eager has kernels of its own for sparse tensors.

With a `padding_idx`, how many entries there are depends on the data. So a traced gradient has those of the padding,
too, at the index -1, and they go where a sparse tensor is made, which is outside of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import Operator
from subclass_aot.errors import TraceError
from subclass_aot.meta import places, spec

_NO_RULE = """{func} has no rule for a sparse gradient in a compiled function.
  Your line:  {line}
  Instead: gradient.to_dense(), or do it outside of the compiled function."""

_aten = torch.ops.aten


class SparseGradient(torch.Tensor):
    """A sparse tensor without data: indices and values that are traced.

    Args:
        indices: Of shape `[sparse_dim, nnz]`, int64.
        values: Of shape `[nnz, *dense]`.
        size: The shape of the whole.
        is_coalesced: Whether each position stands there once, in order; None if that is not known.
        padded: Whether entries at the index -1 do not count.
    """

    indices_: torch.Tensor
    values_: torch.Tensor
    is_coalesced_: bool | None
    padded_: bool

    zeros_are_entries = True
    """Adding zeros makes another gradient: they are entries, and optimizers count these."""

    def __new__(
        cls,
        indices: torch.Tensor,
        values: torch.Tensor,
        size: Sequence[int],
        is_coalesced: bool | None = None,
        padded: bool = False,
    ) -> SparseGradient:
        device = spec.native_device(values.device)  # C++ does not know one that is claimed
        made = _torch.wrappers.make_wrapper_subclass(cls, size, dtype=values.dtype, device=device)
        made.indices_, made.values_, made.is_coalesced_, made.padded_ = indices, values, is_coalesced, padded
        return made  # type: ignore[no-any-return]

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["indices_", "values_"], (self.is_coalesced_, self.padded_)

    @staticmethod
    def __tensor_unflatten__(
        inner: Mapping[str, Any], context: tuple[bool | None, bool], size: Sequence[int], stride: object
    ) -> torch.Tensor:
        indices, values = inner["indices_"], inner["values_"]
        if type(values) is not torch.Tensor:
            return SparseGradient(indices, values, size, *context)
        is_coalesced, padded = context
        if padded:
            kept = (indices[0] >= 0).nonzero().squeeze(1)
            indices, values = indices[:, kept], values[kept]
        return torch.sparse_coo_tensor(indices, values, tuple(size), is_coalesced=is_coalesced, check_invariants=False)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Operator, types: Collection[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        rule = _RULES.get(func)
        if rule is None and func.name().startswith("aten::_foreach_"):
            return _one_by_one(func, args, kwargs or {})
        result = NotImplemented if rule is None else rule(*args, **(kwargs or {}))
        if result is NotImplemented:
            raise TraceError(_NO_RULE.format(func=func, line=user_line()))
        return result

    @classmethod
    def like(cls, tensor: torch.Tensor, leaf: Callable[[torch.Tensor], Any]) -> SparseGradient:
        """Returns a gradient that stands for an existing sparse tensor, where `leaf` makes what stands for a dense
        one.
        """
        indices, values = _torch.wrappers.parts_of_sparse(tensor)
        return cls(leaf(indices), leaf(values), tensor.shape, tensor.is_coalesced())

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of its entries, which may be claimed."""
        return self.values_.device

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        """Whether that is of the type `cuda`."""
        return self.device.type == "cuda"

    def coalesce(self) -> SparseGradient:
        """Returns the gradient itself, if each position stands there once; else, in a run without data, one with as
        many entries as there are positions. In a trace, their number depends on data.
        """
        if self.is_coalesced_:
            return self
        if self.values_.meta_tag is not None:  # type: ignore[attr-defined]
            raise TraceError(_NO_RULE.format(func="coalesce", line=user_line()))
        # as the kernel, which makes room for all entries
        indices, values = torch.empty_like(self.indices_), torch.empty_like(self.values_)
        at = self.indices_[0] if len(self.indices_) == 1 else self.indices_.sum(0)
        at.sort()
        positions = torch.unique(self.indices_, dim=1)
        found = min(positions.shape[1], math.prod(self.shape[: len(self.indices_)]))
        kept = indices[:, :found].copy_(positions[:, :found])
        return SparseGradient(kept, values[:found], self.shape, True)

    def indices(self) -> torch.Tensor:
        """Returns the positions of the entries."""
        return self.coalesce().indices_

    def values(self) -> torch.Tensor:
        """Returns the entries."""
        return self.coalesce().values_

    @property
    def is_sparse(self) -> bool:  # type: ignore[override]
        """True, as of a sparse tensor: programs read it."""
        return True

    def new(self, indices: Any, values: Any, size: Any) -> SparseGradient:  # type: ignore[override]
        """Returns a sparse tensor of some entries, as optimizers make them."""
        return SparseGradient(indices, values, size, None)

    def to_dense(self, dtype: torch.dtype | None = None, **_: object) -> torch.Tensor:
        """Returns the same as a dense tensor."""
        return self.dense() if dtype is None else self.dense().to(dtype)

    def dense(self) -> torch.Tensor:
        """Returns the same as a dense tensor."""
        sparse_dims = self.indices_.size(0)
        zeros = self.values_.new_zeros(self.shape)
        indices, values = self.indices_, self.values_
        if self.padded_:
            counts = (indices[0] >= 0).reshape(-1, *[1] * (values.dim() - 1))
            indices, values = indices.clamp(min=0), torch.where(counts, values, 0)
        return _aten.index_put.default(zeros, [indices[i] for i in range(sparse_dims)], values, True)  # type: ignore[no-any-return]


def _same(x: SparseGradient, *_: object, **__: object) -> SparseGradient:
    return _with_values(x, x.values_)


def _copied(x: SparseGradient, *_: object, **__: object) -> SparseGradient:
    if x.values_.meta_tag is not None:  # type: ignore[attr-defined]  # in a trace: it is written nowhere
        return _with_values(x, x.values_)
    return SparseGradient(x.indices_.clone(), x.values_.clone(), x.shape, x.is_coalesced_, x.padded_)


def _with_values(x: SparseGradient, values: torch.Tensor) -> SparseGradient:
    return SparseGradient(x.indices_, values, x.shape, x.is_coalesced_, x.padded_)


def _add(x: torch.Tensor, y: torch.Tensor, alpha: complex = 1) -> Any:
    """Adds as autograd does: of two sparse tensors the entries of both, later ones first; else a dense tensor."""
    if not (isinstance(x, SparseGradient) and isinstance(y, SparseGradient)):
        return torch.add(_dense(x), _dense(y), alpha=alpha)
    more = y.values_ if alpha == 1 else y.values_ * alpha
    indices, values = torch.cat([y.indices_, x.indices_], 1), torch.cat([more, x.values_])
    return SparseGradient(indices, values, x.shape, False, x.padded_ or y.padded_)


def _add_(x: torch.Tensor, y: SparseGradient, alpha: complex = 1) -> Any:
    if isinstance(x, SparseGradient):
        if y.values_.meta_tag is not None:  # type: ignore[attr-defined]
            return NotImplemented
        added = _add(x, y, alpha)
        x.indices_, x.values_, x.is_coalesced_, x.padded_ = added.indices_, added.values_, False, added.padded_
        return x
    if y.values_.meta_tag is None:  # type: ignore[attr-defined]  # no trace: as the kernel, which makes nothing dense
        if len(y.indices_) == 1:
            return x.index_add_(0, y.indices_[0], y.values_)
        x.index_put_(tuple(y.indices_), y.values_, accumulate=True)
        return x
    return x.add_(y.dense(), alpha=alpha)


def _mul_(x: torch.Tensor, y: torch.Tensor | complex) -> Any:
    if not isinstance(x, SparseGradient) or isinstance(y, SparseGradient) or x.values_.meta_tag is not None:  # type: ignore[attr-defined]
        return NotImplemented
    x.values_.mul_(y)
    return x


def _dense(value: torch.Tensor) -> Any:
    return value.dense() if isinstance(value, SparseGradient) else value


def _scaled(func: Operator) -> Any:
    def rule(x: torch.Tensor, y: torch.Tensor | complex) -> Any:
        is_number = not isinstance(y, torch.Tensor) or y.dim() == 0
        if not (isinstance(x, SparseGradient) and is_number):
            return NotImplemented
        return _with_values(x, func(x.values_, y))

    return rule


def _masked(x: torch.Tensor, mask: SparseGradient, *_: object) -> SparseGradient:
    """Returns the entries of a dense tensor at the positions of a sparse one."""
    return _with_values(mask, x[tuple(mask.indices_)])


_RULES = {
    _aten._indices.default: lambda x: x.indices_,
    _aten._values.default: lambda x: x.values_,
    _aten._nnz.default: lambda x: x.values_.shape[0],
    _aten.is_coalesced.default: lambda x: bool(x.is_coalesced_),
    _aten.sparse_mask.default: _masked,
    _aten.detach.default: _same,
    _aten.alias.default: _same,
    _aten.clone.default: _copied,
    _aten.add.Tensor: _add,
    _aten.add_.Tensor: _add_,
    _aten.mul_.Tensor: _mul_,
    _aten.mul.Tensor: _scaled(_aten.mul.Tensor),
    _aten.div.Tensor: _scaled(_aten.div.Tensor),
    _aten.neg.default: lambda x: _with_values(x, -x.values_),
}


def _one_by_one(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs an operator of lists as kernels do where one of the tensors is sparse: on one tensor after the other."""
    name = func.overloadpacket.__name__.removeprefix("_foreach_")
    one = getattr(torch.Tensor, name, None) or getattr(torch, name)
    lists = [isinstance(x, list | tuple) for x in args]
    results = [
        one(*(x[i] if is_list else x for x, is_list in zip(args, lists, strict=True)), **kwargs)
        for i in range(len(args[0]))
    ]
    return None if name.endswith("_") else results


@places.sparse_tensor_of_program.put
def of_entries(stream: object, indices: Any, values: Any, size: Sequence[int] | None = None, **options: Any) -> Any:
    """Returns `torch.sparse_coo_tensor` of tensors on a device that is only claimed, which C++ would look for."""
    device = getattr(values, "device", None)
    if size is None or device is None or spec.native_device(device) == device or options.get("requires_grad"):
        return NotImplemented
    dtype = options.get("dtype") or values.dtype
    return SparseGradient(indices, values.to(dtype), size, options.get("is_coalesced"))


@places.sparse_tensor.put
def sparse_of(
    sparse_dim: int,
    dense_dim: int,
    size: Sequence[int],
    indices: torch.Tensor,
    values: torch.Tensor,
    *,
    is_coalesced: bool | None = None,
    **_: object,
) -> SparseGradient:
    """Returns the tensor that autograd makes of traced indices and values. See Note [Sparse gradients]."""
    return SparseGradient(indices, values, size, is_coalesced, _torch.autograd.skips_padding())


@places.without_padding.put
def leave_out(x: torch.Tensor, mask: Any) -> torch.Tensor:
    """Returns indices with -1 for padding; a gradient at indices is returned as it is. Autograd drops the padding."""
    if x.dim() == mask.dim():
        return torch.where(mask, x, -1)
    return x  # the values, which the indices say not to count


@places.bag_gradient.put
def embedding_bag_backward(
    grad: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    offset2bag: torch.Tensor,
    bag_size: torch.Tensor,
    maximum_indices: torch.Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: torch.Tensor | None,
    padding_idx: int = -1,
) -> Any:
    """Returns the sparse gradient of an embedding bag; the kernel makes a sparse tensor, which a graph cannot have."""
    if not sparse:
        return NotImplemented
    if mode == 0:  # a sum; kernels leave `offset2bag` empty where they do not need it
        starts = indices.new_zeros(indices.size(0) + 1).to(offsets.dtype)
        offset2bag = starts.index_add(0, offsets, torch.ones_like(offsets)).cumsum(0)[: indices.size(0)] - 1
        del starts  # which is not there any more when the gradient is made
    made: Any = _aten._embedding_bag_sparse_backward.default(
        grad, indices, offsets, offset2bag, bag_size, num_weights, scale_grad_by_freq, mode, per_sample_weights
    )
    if padding_idx < 0:
        return made
    return SparseGradient(leave_out(made.indices_, made.indices_ != padding_idx), made.values_, made.shape, padded=True)


places.sparse_like.put(SparseGradient.like)
