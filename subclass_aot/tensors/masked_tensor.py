"""A tensor of which only some elements count.

The format is that of `torch.masked` (pytorch.org/docs/stable/masked.html), whose masks are True where values count.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from subclass_aot.base import ops
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.structure_copies import copied_to
from subclass_aot.kit.wrapper import Outer, WrapperTensor, structure

aten: Any = torch.ops.aten
Dims = int | tuple[int, ...]


class MaskedTensor(WrapperTensor, views="broadcast", fallback="error"):
    """A tensor of which only the elements count at which `mask` is True; what the others hold means nothing.

    An element of a result counts where all do that it is computed of; one of a sum, where any does. To autograd, all
    elements of a sum are alike, so that of a tensor that requires grad is the method `sum`, and not `torch.sum`.

    >>> x = MaskedTensor(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[True, False], [True, True]]))
    >>> (x * 2).sum(1).to_plain()
    tensor([ 2., 14.])
    >>> x.softmax(1).to_plain()
    tensor([[1.0000, 0.0000],
            [0.2689, 0.7311]])
    """

    content: torch.Tensor
    mask: torch.Tensor = structure()  # bool

    def outer_metadata(self) -> Outer:
        if Outer.are_known(self.content, self.mask) and self.mask.shape != self.content.shape:
            raise Outer.misfit(self, "content and mask of one size")
        return Outer.like(self.content)

    def to_plain(self) -> torch.Tensor:
        """Returns the elements that count, and zeros."""
        return filled(self, 0)

    def sum(self, dim: Dims = (), keepdim: bool = False) -> MaskedTensor:  # type: ignore[override]
        """Returns the sum of the elements that count; it counts if there is one."""
        return MaskedTensor(self.to_plain().sum(dim, keepdim), self.mask.sum(dim, keepdim) > 0)

    def mean(self, dim: Dims = (), keepdim: bool = False) -> MaskedTensor:  # type: ignore[override]
        """Returns the mean of the elements that count; it counts if there is one."""
        return self.sum(dim, keepdim) / self.mask.sum(dim, keepdim)  # type: ignore[return-value]


def filled(x: MaskedTensor, value: float) -> torch.Tensor:
    """Returns a dense tensor with `value` at the elements that do not count."""
    return x.content.where(x.mask, torch.full((), value, dtype=x.dtype, device=x.device))


def neutral_element(op: Operator, dtype: torch.dtype) -> float | None:
    """Returns what makes no difference to a reduction; None if there is no such element, or gradients would be
    wrong.
    """
    least, most = -float("inf"), float("inf")
    if not dtype.is_floating_point:
        least, most = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    known = {"sum": 0, "prod": 1, "amax": least, "amin": most, "any": 0, "all": 1, "count_nonzero": 0}
    return known.get(op.overloadpacket.__name__)


@MaskedTensor.implements(ops.pointwise, aten._to_copy.default, aten.fill.Scalar, aten.zero.default)
def _(op: Operator, *args: object, **kwargs: object) -> Any:
    out = op(*[a.content if isinstance(a, MaskedTensor) else a for a in args], **kwargs)
    mask = functools.reduce(torch.logical_and, [a.mask for a in args if isinstance(a, MaskedTensor)])
    return MaskedTensor(out, mask.to(out.device).expand(out.shape).clone())


@MaskedTensor.implements(ops.factories)
def _(op: Operator, x: MaskedTensor, *args: object, **kwargs: object) -> Any:
    out = op(x.content, *args, **kwargs)
    return MaskedTensor(out, copied_to(x.mask, out.device)) if out.shape == x.shape else NotImplemented


@MaskedTensor.implements(ops.reductions)
def _(op: Operator, x: MaskedTensor, *args: object, **kwargs: object) -> Any:
    neutral = neutral_element(op, x.dtype)
    if neutral is None or op.overloadpacket is aten.sum and x.requires_grad:
        return NotImplemented
    out, dims = op(filled(x, neutral), *args, **kwargs), args[:2] if args and args[0] != [] else ()
    return MaskedTensor(out, x.mask.any(*dims).expand(out.shape).clone())


@MaskedTensor.implements(aten._softmax.default)
def _(x: MaskedTensor, dim: int, half_to_float: bool) -> MaskedTensor:
    return MaskedTensor(aten._softmax(filled(x, -float("inf")), dim, half_to_float), x.mask.clone())


@MaskedTensor.implements(aten._softmax_backward_data.default)
def _(*tensors_and_options: object) -> MaskedTensor:
    mask = next(x.mask for x in tensors_and_options if isinstance(x, MaskedTensor))
    dense = [filled(x, 0) if isinstance(x, MaskedTensor) else x for x in tensors_and_options]
    return MaskedTensor(aten._softmax_backward_data(*dense), mask.clone())
