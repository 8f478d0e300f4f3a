"""Rows of different lengths, end to end, with offsets that say where each begins.

The format, values and offsets, is that of torch's jagged nested tensors (pytorch.org/docs/stable/nested.html).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import ops
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.structure_copies import copied_to
from subclass_aot.kit.wrapper import Outer, WrapperTensor, structure
from subclass_aot.tensors.masked_tensor import neutral_element

aten: Any = torch.ops.aten


class Jagged(WrapperTensor, fallback="error"):
    """A batch of rows of different lengths, which looks padded: `[B, longest, ...]`. No operator sees the padding.

    Functions of the last dims, as layers are, act on all rows at once by `map`. Reductions give dense tensors. To
    autograd, padding is a part of a sum, so that of a tensor that requires grad is the method `sum`, not `torch.sum`.

    >>> x = Jagged.of(torch.tensor([1.0, 2.0]), torch.tensor([3.0]))
    >>> (-x).abs().to_plain()
    tensor([[1., 2.],
            [3., 0.]])
    >>> x.amin(1), x.sum(1) / x.lengths()
    (tensor([1., 3.]), tensor([1.5000, 3.0000]))
    """

    flat: torch.Tensor  # [total, ...]
    offsets: torch.Tensor = structure()  # int64[B + 1]
    longest: int = 0

    def outer_metadata(self) -> Outer:
        return Outer.like(self.flat, size=(self.offsets.shape[0] - 1, self.longest, *self.flat.shape[1:]))

    def to_plain(self) -> torch.Tensor:
        """Returns the rows padded with zeros."""
        return padded(self, 0)

    def sum(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        total: torch.Tensor = self.to_plain().sum(*args, **kwargs)
        return total

    def lengths(self) -> torch.Tensor:
        return self.offsets.diff()

    def places(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns for each element of `flat` its row, and its place in that."""
        each = torch.arange(self.flat.shape[0], device=self.flat.device)
        rows = torch.bucketize(each, self.offsets[1:], right=True)
        return rows, each - self.offsets[rows]

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Jagged:
        """Runs a function on `flat`; it keeps the first dim."""
        return Jagged(function(self.to_plain()[self.places()]), self.offsets.clone(), self.longest)

    @classmethod
    def of(cls, *rows: torch.Tensor) -> Jagged:
        """Puts rows `[length, ...]` together."""
        offsets = torch.tensor([0, *map(len, rows)], device=rows[0].device).cumsum(0)
        return cls(torch.cat(rows), offsets, max(map(len, rows)))


def padded(x: Jagged, value: float) -> torch.Tensor:
    """Returns the rows padded with `value`."""
    return x.flat.new_full(x.shape, value).index_put(x.places(), x.flat)


@Jagged.implements(ops.pointwise, ops.factories, aten._to_copy.default, aten.fill.Scalar, aten.zero.default)
def _(op: Operator, *args: object, **kwargs: object) -> Any:
    like = next(a for a in args if isinstance(a, Jagged))

    def flat(a: object) -> Any:
        if not isinstance(a, Jagged):
            return a.expand(like.shape)[like.places()] if isinstance(a, torch.Tensor) and a.dim() else a
        if a is not like:
            same = (a.offsets == like.offsets).all()
            aten._assert_async.msg(same, "the rows of two Jagged are of different lengths")
        return a.flat

    if any(isinstance(a, Jagged) and a.shape != like.shape for a in args):
        return NotImplemented
    out = op(*map(flat, args), **kwargs)
    offsets = copied_to(like.offsets, out.device)
    return Jagged(out, offsets, like.longest) if out.shape == like.flat.shape else NotImplemented


@Jagged.implements(ops.reductions)
def _(op: Operator, x: Jagged, *args: Any, **kwargs: object) -> Any:
    neutral = neutral_element(op, x.dtype)
    if neutral is None or op.overloadpacket is aten.sum and x.requires_grad:
        return NotImplemented
    dims = args[0] if args and args[0] is not None else []
    dims = [dim % x.dim() for dim in (dims if isinstance(dims, list) else [dims])]
    if dims and 1 not in dims and neutral != 0:
        return NotImplemented  # padding would be a part of the result
    return op(padded(x, neutral), *args, **kwargs)
