"""Products of rows and a quantized weight whose dense form is never in memory: see `tensors/products.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from subclass_aot.base._torch import quantized
from subclass_aot.kit.wrapper import ViewOf, WrapperTensor
from subclass_aot.tensors.float8_weight import Float8Weight
from subclass_aot.tensors.int4_weight import Int4Weight
from subclass_aot.tensors.int8_weight import Int8Weight, plus
from subclass_aot.tensors.nf4_weight import LEVELS, NF4Weight, Scales
from subclass_aot.tensors.products import product, writes_out
from subclass_aot.tensors.sparse24_weight import Sparse24Weight

aten: Any = torch.ops.aten

MADE_OF: dict[str, Callable[..., Any]] = {
    **{cls.__name__: cls for cls in (Int8Weight, Float8Weight, Int4Weight, Sparse24Weight)},
    "NF4Weight": lambda packed, *scales: NF4Weight(packed, Scales(*scales)),
}
"""By the name of a class, what makes a weight of the dense tensors that it is made of."""


def fields_of(weight: Any) -> Iterator[torch.Tensor]:
    """Yields the dense tensors that a weight is made of."""
    for name in weight.__tensor_flatten__()[0]:
        field = getattr(weight, name)
        if isinstance(field, WrapperTensor):
            yield from fields_of(field)
        else:
            yield field


def _mm(a: torch.Tensor, b: torch.Tensor) -> Any:
    weight = _transposed(b)
    if weight is None or isinstance(a, WrapperTensor):
        return NotImplemented
    return product(a, type(weight).__name__, list(fields_of(weight)), LEVELS if isinstance(weight, NF4Weight) else ())


def _addmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    found = NotImplemented if isinstance(bias, WrapperTensor) else _mm(a, b)
    return found if found is NotImplemented else plus(bias, found, beta, alpha)


def _transposed(weight: torch.Tensor) -> Any:
    """Returns the weight `[M, N]` with a scale for each row, or for each part of one, that was transposed; or None."""
    if isinstance(weight, Float8Weight):
        return weight.t() if weight.dim() == 2 and weight.scale.shape[0] == 1 else None
    return weight.base if isinstance(weight, ViewOf) and weight.is_transposed else None


@writes_out(quantized.weight_mm)
def _(x: torch.Tensor, fields: Sequence[torch.Tensor], kind: str, numbers: Sequence[float]) -> torch.Tensor:
    dense: torch.Tensor = MADE_OF[kind](*fields).to_plain()
    return x @ dense.t()


for _cls in (Float8Weight, Int4Weight, NF4Weight, Sparse24Weight):
    _cls.implements(aten.mm.default)(_mm)
    _cls.implements(aten.addmm.default)(_addmm)
