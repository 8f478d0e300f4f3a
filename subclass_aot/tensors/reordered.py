"""A weight whose columns lie in another order than those of the other operand of its products.

Weights that GPTQ has rounded in the order of activations (`desc_act`) have groups of columns that do not lie side by
side. In the order of groups they do, and any class with groups holds them.
"""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.kit.wrapper import Outer, ViewOf, WrapperTensor, structure

aten: Any = torch.ops.aten


class Reordered(WrapperTensor):
    """A `[M, N]` weight of which column `order[j]` is column `j` of another one.

    >>> weight = Reordered(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2, 0, 1]))
    >>> weight.to_plain()
    tensor([[2., 3., 1.]])
    >>> torch.nn.functional.linear(torch.tensor([[1.0, 10.0, 100.0]]), weight)
    tensor([[132.]])
    """

    accepts = (ViewOf,)

    base: torch.Tensor  # [M, N], dense or a wrapper
    order: torch.Tensor = structure()  # int64[N]

    def outer_metadata(self) -> Outer:
        base, order = self.base.shape, self.order.shape
        if Outer.are_known(self.base, self.order) and not (len(base) == 2 and order == base[1:]):
            raise Outer.misfit(self, "base[M, N] and order[N]")
        return Outer.like(self.base)

    def to_plain(self) -> torch.Tensor:
        base: Any = self.base
        dense: torch.Tensor = base.to_plain() if hasattr(base, "to_plain") else base
        return dense.index_select(1, self.order.argsort())

    def from_plain(self, plain: torch.Tensor) -> Reordered:
        """Returns `plain` in the order of this weight, rounded as its base rounds."""
        base: Any = self.base
        dense = plain.index_select(1, self.order)
        made = base.from_plain(dense) if hasattr(base, "from_plain") else dense.to(base.dtype)
        return Reordered(made, self.order.clone())  # written into, each has its own


@Reordered.implements(aten.mm.default, aten.addmm.default)
def _(*tensors: torch.Tensor, **scalars: float) -> Any:
    *bias, a, b = tensors
    weight = b.base if isinstance(b, ViewOf) and b.is_transposed else None
    if not isinstance(weight, Reordered) or any(isinstance(each, WrapperTensor) for each in (*bias, a)):
        return NotImplemented
    product: Any = torch.addmm if bias else torch.mm
    return product(*bias, a.index_select(1, weight.order), weight.base.t(), **scalars)
