"""Effects of operators on fields that are structure. See `fields.structure`."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch

from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import MOVES, Effects

aten: Any = torch.ops.aten

_RUN = MOVES | {aten.equal.default, aten.allclose.default, aten.is_same_size.default}
"""Operators that keep, move or compare what there is."""

_LIKE = {"zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "randint_like"}


class Treatment(Enum):
    """The effect of an operator on wrappers on an inner tensor that is structure."""

    RUNS = "the operator runs on it, too"
    STAYS = "nothing, and no result holds it"
    COPIED = "each result has a copy of it"
    UNKNOWN = "only a rule can say"


def treatment(func: Operator, effects: Effects) -> Treatment:
    """Returns what `func` does to structure.

    >>> from subclass_aot.base.operators import effects_of
    >>> for func in (aten.t.default, aten.mul_.Tensor, aten.mul.Tensor, aten.sum.default):
    ...     print(treatment(func, effects_of(func)).name)
    RUNS
    STAYS
    COPIED
    UNKNOWN
    """
    if func in _RUN or effects.viewed or effects.reshapes:
        return Treatment.RUNS
    if effects.returned or not set(effects.returns) - {"other"}:  # it writes, or gives numbers
        return Treatment.STAYS
    on_lists = func.name().startswith(("aten::_foreach_", "aten::_fused_"))
    if torch.Tag.pointwise in func.tags or on_lists or func.overloadpacket.__name__ in _LIKE:
        return Treatment.COPIED
    return Treatment.UNKNOWN
