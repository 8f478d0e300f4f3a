"""Constants with one value at each place, as full masks: they are known at any size."""

from __future__ import annotations

from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import effects_of
from subclass_aot.meta import Spec, fillers

_aten = torch.ops.aten

MOST_MADE = 1 << 16
"""Elements that a constant has at the most which is kept as it is."""


def fill(spec: Spec, value: torch.Tensor) -> torch.Tensor:
    """Returns a constant of which each element is the same one in memory.

    Args:
        spec: What it stands for.
        value: The value, as a tensor with one element.
    """
    return value.reshape(()).to(spec.dtype).expand(spec.size)


def is_fill(value: torch.Tensor) -> bool:
    """Returns whether a constant is one element that stands for many, or a part of such a one."""
    return value.untyped_storage().nbytes() == value.dtype.itemsize and value.numel() != 1


def made_by(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the number that a factory fills a tensor with; None of all other operators, and if nobody knows it."""
    place = fillers.FILLERS.get(func.overloadpacket)
    if place is None or place[0] == "at":
        value = None if place is None else kwargs.get("fill_value", args[place[1]] if len(args) > place[1] else None)
        return value if isinstance(value, bool | int | float) else None
    return place[1]


def on_fills(func: Operator, tree: Any, results: list[Spec]) -> Any:
    """Returns what an operator gives for constants, of which some are too long to be computed with.

    Args:
        func: Any operator.
        tree: Its arguments and its keyword arguments, with constants for tensors.
        results: What it gives without data.

    Returns:
        The constants, in a list; None if they are not known.
    """
    packet, effects = func.overloadpacket, effects_of(func)
    is_view = not effects.writes and any(view is not None for view in effects.returns_view_of)
    args, kwargs = tree
    if packet in _BY_STRIDES and is_fill(args[0]):  # what it says of memory is not so of one element
        return [fill(results[0], args[0].as_strided((), ()))]
    if is_view:
        with _torch.dispatch.disable_current_modes():
            return optree.tree_leaves(func(*args, **kwargs), none_is_leaf=True)
    if not (torch.Tag.pointwise in func.tags or packet in _OF_ONE or packet in _COUNTS) or len(results) != 1:
        return None
    tensors = [x for x in optree.tree_iter(tree, none_is_leaf=True) if isinstance(x, torch.Tensor)]
    with _torch.dispatch.disable_current_modes(), torch.no_grad():
        if not all(x.numel() and (is_fill(x) or bool((x == x.flatten()[0]).all())) for x in tensors):
            return None
        ones: Any = optree.tree_map(_one, tree, none_is_leaf=True)
        value = func(*ones[0], **ones[1])
        if packet in _COUNTS:
            value = value * (tensors[0].numel() // max(results[0].numel, 1))
    return [fill(results[0], value)]


def _one(value: object) -> object:
    """Returns a copy of one element of a constant, with as many dims."""
    if not isinstance(value, torch.Tensor):
        return value
    ones = (1,) * value.dim()
    return value.as_strided(ones, ones).clone()


_BY_STRIDES = frozenset({_aten.as_strided, _aten._reshape_alias, _aten._unsafe_view})
"""What gives the same elements, by their number or by where they lie."""
_OF_ONE = frozenset(getattr(_aten, name) for name in "_to_copy clone copy_ all any amax amin max min mean".split())
"""Operators that give one of the elements for many that are the same."""
_COUNTS = frozenset({_aten.sum, _aten.count_nonzero})
