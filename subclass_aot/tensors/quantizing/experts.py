"""Products with the weights of several experts, of which a token visits a few.

`torch._grouped_mm` multiplies rows that are sorted by expert, each group with the weight of its own. Of a quantized
weight the dense ones of all experts would be made for that, at each call. The operator here makes those of experts
that have rows, one at a time, and takes the product of the class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.kit.wrapper import SERVED, ViewOf, WrapperTensor
from subclass_aot.tensors.float8_weight import Float8Weight
from subclass_aot.tensors.int4_weight import Int4Weight
from subclass_aot.tensors.int8_weight import Int8Weight
from subclass_aot.tensors.nf4_weight import NF4Weight
from subclass_aot.tensors.quantizing.by_rows import MADE_OF, fields_of

aten: Any = torch.ops.aten

_CLASSES: tuple[type[WrapperTensor], ...] = (Int8Weight, Float8Weight, Int4Weight, NF4Weight)
"""Their fields have the expert as first dim, where they are the weight of several."""


def _product(
    x: object,
    weights: object,
    offs: torch.Tensor | None = None,
    bias: object = None,
    out_dtype: object = None,
) -> Any:
    found = _of_experts(weights)
    if not isinstance(x, torch.Tensor) or isinstance(x, WrapperTensor) or x.dim() != 2:
        return NotImplemented
    if type(found) not in _CLASSES or offs is None or bias is not None or out_dtype is not None:
        return NotImplemented
    if x.device.type != "cpu" or found.dtype is not x.dtype:
        return NotImplemented  # on another device, to read the groups is to wait for it
    _counted()
    return experts_mm(x, list(fields_of(found)), offs, type(found).__name__)


def _in_transformers(cls: type, operator: object) -> Callable[..., Any] | None:
    """Returns the product of a class in the operator that models of `transformers` call in a trace.

    They call `torch._grouped_mm` in eager mode, and this one in a trace, for all dtypes but bfloat16.
    """
    is_grouped = str(operator) == "transformers.grouped_mm_fallback.default"
    return _product if is_grouped and cls in (*_CLASSES, ViewOf) else None


for _cls in _CLASSES:
    _cls.implements(aten._grouped_mm.default)(_product)
SERVED["transformers"] = _in_transformers  # as `extend.register_namespace`, which the engine comes with


def _of_experts(weights: object) -> Any:
    """Returns the weights `[E, M, N]` of which these are `weights.transpose(-2, -1)`; None if they are of none."""
    if not isinstance(weights, ViewOf):
        return weights.mT if isinstance(weights, WrapperTensor) and weights.dim() == 3 else None
    base, steps = weights.base, weights.steps
    if len(steps) != 1 or base.dim() != 3 or steps[0][0] != "transpose.int":
        return None
    return base if sorted(dim % 3 for dim in steps[0][1]) == [1, 2] else None


@torch.library.custom_op("subclass_aot_tensors::experts_mm", mutates_args=())
def experts_mm(x: torch.Tensor, fields: list[torch.Tensor], offs: torch.Tensor, kind: str) -> torch.Tensor:
    """Multiplies rows that are sorted by expert, each with the weight of its own.

    Args:
        x: `[rows, N]`.
        fields: What the weights `[E, M, N]` are made of; the rows of the first are theirs.
        offs: `int32[E]`: after each expert, how many rows there were.
        kind: The name of their class.

    It has a namespace of its own: those of `subclass_aot` are partly defined by a trace, and in no file.

    Returns:
        `[rows, M]`. Rows behind those of the last expert are zero.
    """
    found = x.new_zeros(x.shape[0], fields[0].shape[-2])
    begin = 0
    for expert, end in enumerate(offs.tolist()):
        if end > begin:
            weight = MADE_OF[kind](*[field[min(expert, field.shape[0] - 1)] for field in fields])
            found[begin:end] = torch.nn.functional.linear(x[begin:end], weight)
            begin = end
    return found


@experts_mm.register_fake
def _(x: torch.Tensor, fields: list[torch.Tensor], offs: torch.Tensor, kind: str) -> torch.Tensor:
    return x.new_empty(x.shape[0], fields[0].shape[-2])


@functools.cache
def _counted() -> None:
    """Has torch count its products, once: what counts is slow to import."""
    from torch.utils.flop_counter import register_flop_formula

    def flops(x: Sequence[int], fields: object, *args: object, out_shape: Sequence[int] = (), **kwargs: object) -> int:
        return 2 * x[0] * x[1] * out_shape[1]

    register_flop_formula(torch.ops.subclass_aot_tensors.experts_mm)(flops)
