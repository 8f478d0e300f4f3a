"""Lists the operators that fill a tensor with one number: where that is known, the tensor is."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.base._torch.operators import Operator

_aten = torch.ops.aten

FILLERS: dict[Any, tuple[str, int]] = {
    **{getattr(_aten, name): ("is", 0) for name in ("zeros", "zeros_like", "new_zeros", "zero_")},
    **{getattr(_aten, name): ("is", 1) for name in ("ones", "ones_like", "new_ones")},
    **{getattr(_aten, name): ("at", 1) for name in ("full", "full_like", "fill_")},
    _aten.new_full: ("at", 2),
}
"""What fills tensors: with a number, or with that at a position among the arguments."""

BLANK = frozenset(
    getattr(_aten, name) for name in "empty empty_like empty_strided empty_permuted new_empty new_empty_strided".split()
)
"""What makes a tensor of which nobody has said what is in it."""


def made_by(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the number that a factory fills a tensor with; None of all other operators, and if nobody knows it."""
    place = FILLERS.get(func.overloadpacket)
    if place is None or place[0] == "at":
        value = None if place is None else kwargs.get("fill_value", args[place[1]] if len(args) > place[1] else None)
        return value if isinstance(value, bool | int | float) else None
    return place[1]
