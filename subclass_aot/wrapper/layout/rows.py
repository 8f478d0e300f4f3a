"""How the inner tensors of a wrapper line up with its rows: which can be cut along dim 0, and where.

One function decides it, by the declaration and by the sizes. A further way of lining up is a further answer of it.
"""

from __future__ import annotations

from fractions import Fraction

import torch

from subclass_aot.declaration import Declaration
from subclass_aot.wrapper.layout.strided import CannotFollow


def rows_of(wrapper: torch.Tensor, name: str) -> Fraction:
    """How many rows of an inner tensor go with one row of the wrapper: `share_of` along dim 0.

    >>> from subclass_aot import Int8Weight
    >>> weight = Int8Weight(torch.ones(4, 3, dtype=torch.int8), torch.ones(1, 3))
    >>> int(rows_of(weight, "codes")), int(rows_of(weight, "scale"))
    (1, 0)
    """
    return share_of(wrapper, name, 0)


def share_of(wrapper: torch.Tensor, name: str, dim: int) -> Fraction:
    """How far an inner tensor goes along one dim where the wrapper goes one step.

    One of which the wrapper has a single row may be either; it is said to go with that row.

    Args:
        wrapper: The wrapper, of any class.
        name: The name of the inner tensor.
        dim: A dim of the wrapper.

    Returns:
        1 where it is as long as the wrapper, less where one element of its own stands for several; 0 where all share
        what it holds.

    Raises:
        CannotFollow: It is neither.
    """
    field = getattr(wrapper, name)
    outer, size = list(wrapper.shape), list(field.shape)
    what = "rows" if dim == 0 else f"length along dim {dim}"
    declaration = Declaration.of(type(wrapper))
    if declaration is None or declaration.fallback == "each":  # views act on every inner tensor alike
        if size[dim : dim + 1] == outer[dim : dim + 1]:
            return Fraction(1)
        raise CannotFollow(f"{name}{size} does not have the {what} of a tensor of {outer}")
    if declaration.views is None:
        raise CannotFollow(
            f'{type(wrapper).__name__} declares no views="broadcast", so nothing says what a row of it is'
        )
    if is_kept(wrapper, name) or len(size) < len(outer):
        return Fraction(0)
    if how_viewed(type(wrapper), name) == "blocks":
        if len(size) == len(outer) and size[dim] and outer[dim] % size[dim] == 0:
            return Fraction(size[dim], outer[dim])
    elif len(size) == len(outer) and size[dim] in (1, outer[dim]):
        return Fraction(int(size[dim] == outer[dim]))
    raise CannotFollow(f"{name}{size} has neither the {what} of a tensor of {outer} nor one for all of them")


def how_viewed(cls: type, name: str) -> str:
    """How views act on an inner tensor, as a class declares it; "" where it says nothing."""
    declaration = Declaration.of(cls)
    if declaration is None or declaration.views is None:
        return ""
    return declaration.views.get(declaration.field_of(name), "broadcast")


def is_kept(wrapper: torch.Tensor, name: str) -> bool:
    """Whether a class declares an inner tensor to be the same for every view of a tensor."""
    return how_viewed(type(wrapper), name) == "keep"
