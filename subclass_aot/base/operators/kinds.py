"""Kinds of operators: a rule for one serves the others of its kind, with the operator as a parameter."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import torch
from torch.fx.node import Target

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators.schema import PHYSICAL, Effects, effects_of

_aten: Any = torch.ops.aten

MOVES = frozenset(
    {
        _aten.detach.default,
        _aten.alias.default,
        _aten.lift_fresh.default,
        _aten.clone.default,
        _aten.copy_.default,
        _aten._to_copy.default,
        _aten._pin_memory.default,
        _aten.is_pinned.default,
        _aten.record_stream.default,
    }
)
"""Operators that keep, move or copy a tensor as it is. Torch tags `clone` as pointwise; it must not share a mask."""

_POINTWISE = frozenset({_aten._conj_physical.default, _aten.leaky_relu.default, _aten.mish_backward.default})
"""Operators that are pointwise, and that torch, or torch 2.11, does not tag so."""


class OperatorKind(Enum):
    """Operators that have something in common, by schema and tags. An operator is of one kind at most."""

    POINTWISE = "each element of the one result is computed from the elements at its place, as in `mul` and `where`"
    REDUCTIONS = "dims, or all of them, become one value, as in `sum`, `amax` and `median`"
    FACTORIES = "a tensor is made of sizes and options and takes no values, as in `zeros_like`, `new_full` and `ones`"
    IN_PLACE = "new values are written into the first argument, which is the result, as in `add_` and `index_put_`"
    VIEWS = "the result shares the memory of an argument, as in `t`, `expand` and `split`"


def kind_of(func: Target) -> OperatorKind | None:
    """Returns the kind of an operator, read of its schema and tags once.

    Composite operators have none, since autograd takes them apart before; nor have `clone`, `copy_`, `detach` and the
    others that leave a tensor as it is, `out=` overloads, collectives, and what changes sizes or strides in place.

    >>> kind_of(torch.ops.aten.mul.Tensor).name, kind_of(torch.ops.aten.mul_.Tensor).name
    ('POINTWISE', 'IN_PLACE')
    >>> kind_of(torch.ops.aten.clone.default), kind_of(torch.ops.aten.linear.default)
    (None, None)
    """
    if id(func) not in _kinds and _torch.operators.is_overload(func):
        _kinds[id(func)] = _read(func, effects_of(func))  # which hold the operator, so that its `id` stays its own
    return _kinds.get(id(func))


_kinds: dict[int, OperatorKind | None] = {}


def _read(func: Operator, effects: Effects) -> OperatorKind | None:
    if (
        func in MOVES
        or func in PHYSICAL
        or func.namespace in _torch.collectives.COLLECTIVES
        or _torch.operators.can_decompose(func)
    ):
        return None
    tags = set(func.tags)
    if effects.writes:
        first = next(iter(_torch.operators.schema_of(func).arguments))
        writes_first = effects.returned == (first.name,) and not first.kwarg_only
        return OperatorKind.IN_PLACE if writes_first and torch.Tag.inplace_view not in tags else None
    if effects.viewed or func is _aten._unsafe_view.default:  # a view of what nobody has any more, as in `reshape`
        return OperatorKind.VIEWS
    if set(effects.returns) != {"tensor"}:
        return None
    if _is_factory(effects):
        return OperatorKind.FACTORIES
    if (torch.Tag.pointwise in tags or func in _POINTWISE) and len(effects.returns) == 1:  # `frexp` has two
        return OperatorKind.POINTWISE
    return OperatorKind.REDUCTIONS if _torch.operators.has_reduction_tag(func) or _is_reduction(func, effects) else None


def _is_factory(effects: Effects) -> bool:
    """Returns whether an operator is a factory: a tensor that it takes is `self`, and `non_blocking` is of copies
    only.
    """
    names = set(effects.parameters)
    if not {"dtype", "device"} <= names or "non_blocking" in names or "list" in effects.parameters.values():
        return False
    return next((name == "self" for name, kind in effects.parameters.items() if kind == "tensor"), True)


def _is_reduction(func: Operator, effects: Effects) -> bool:
    """Checks for one tensor, `dim` and `keepdim`, in it or an overload; torch has no tag for `median` and others."""
    if list(effects.parameters.values()).count("tensor") != 1:
        return False
    if "dim" in effects.parameters:
        return "keepdim" in effects.parameters or func.overloadpacket is _aten.count_nonzero
    packet = func.overloadpacket
    return packet is _aten.count_nonzero or any(
        {"dim", "keepdim"} <= _parameters_of(getattr(packet, name)).keys() for name in packet.overloads()
    )


def _parameters_of(func: Operator) -> Mapping[str, str]:
    return effects_of(func).parameters
