"""Field maps: along each dim, how many elements of a wrapper one of an inner tensor stands for.

Views, new tensors, `as_strided`, shards and placements are made of this and of nothing else that a class declares of
its fields. A further way of lining up is one more case in `FieldMap`.

Note [Fields that follow]
~~~~~~~~~~~~~~~~~~~~~~~~~
Take codes `[4, 6]` and one scale for each row, `[4, 1]`. An element of the codes stands for one element of the wrapper
along both dims; one of the scales stands for one row, and for all columns:

    w[1:3]       # codes[1:3], scale[1:3]
    w[:, 1:3]    # codes[:, 1:3], scale

Where two codes are packed into a byte, `[4, 3]`, an element stands for two columns: `w[:, 2:4]` is `packed[:, 1:2]`,
and `w[:, 1:3]` parts a byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch

from subclass_aot.kit.declaration import Declaration


class CannotFollow(Exception):
    """A field that cannot be viewed as the outer tensor is; the message says why."""


class FieldMap(dict[int, int]):
    """By dim of a wrapper, how many of its elements there an element of one inner tensor stands for.

    It is 1 where the inner tensor is as long as the wrapper, and 0 where one element stands for all. A dim may be
    counted from the last. An entry is computed when it is first read, since each comparison of symbolic sizes is an
    assumption.
    Reading raises `CannotFollow` where the sizes do not line up, and `IndexError` where there is no such dim.

    Args:
        name: The name of the inner tensor.
        how: How the class has views act on it: "broadcast", "blocks" or "keep".
        size: The sizes of the inner tensor.
        outer: The sizes of the wrapper.

    >>> FieldMap("scale", "broadcast", (4, 1), (4, 6))[0], FieldMap("scale", "broadcast", (4, 1), (4, 6))[1]
    (1, 0)
    >>> FieldMap("packed", "blocks", (4, 3), (4, 6))[1]
    2
    """

    __slots__ = ("has_blocks", "how", "lacking", "name", "outer", "same_for_all", "size", "why_not")

    def __init__(self, name: str, how: str, size: Sequence[int], outer: Sequence[int]) -> None:
        super().__init__()
        self.name, self.how, self.size, self.outer = name, how, size, outer
        self.has_blocks = how == "blocks"
        self.lacking = len(outer) - len(size)
        """How many dims of the wrapper come before those of the inner tensor."""
        self.same_for_all = how == "keep" or len(size) == 0 != len(outer)
        """Whether every view has the whole inner tensor."""
        self.why_not: str | None = None
        """Why it does not line up; "" if it does, None where nobody wanted to know."""

    def __missing__(self, dim: int) -> int:
        from_first = dim_of(self.outer, dim)
        if self.same_for_all or from_first < self.lacking:
            elements = 0
        elif self.lacking < 0:
            raise CannotFollow(self._neither(dim))
        else:
            elements = self._elements(dim, self.size[from_first - self.lacking], self.outer[dim])
        self[dim] = elements
        return elements

    def _elements(self, dim: int, mine: int, whole: int) -> int:
        if self.has_blocks:
            if mine == 0:
                return 0
            if whole % mine:
                raise CannotFollow(self._neither(dim))
            return whole // mine
        if mine == 1:
            return int(whole == 1)
        if mine != whole:
            raise CannotFollow(self._neither(dim))
        return 1

    def _neither(self, dim: int) -> str:
        what = "rows" if dim == 0 else f"length along dim {dim}"
        return f"{self} has neither the {what} of a tensor of {list(self.outer)} nor one for all of them"

    def __str__(self) -> str:
        return f"{self.name}{list(self.size)}"

    def share(self, dim: int) -> Fraction:
        """Returns how far the inner tensor goes along a dim where the wrapper goes one step.

        Raises:
            CannotFollow: The sizes do not line up.
        """
        elements = self[dim]
        if elements:
            return Fraction(1, elements)
        if self.has_blocks and not self.same_for_all and self.lacking == 0 == self.size[dim]:
            raise CannotFollow(self._neither(dim))  # of a tensor without elements, nobody can tell
        return Fraction(0)

    def lines_up(self) -> bool:
        """Returns whether the inner tensor follows its wrapper along each dim; `why_not` says why not."""
        if self.why_not is None:
            self.why_not = self._why_not()
        return not self.why_not

    def _why_not(self) -> str:
        if self.has_blocks:
            blocks = zip(self.outer, self.size, strict=True) if self.lacking == 0 else [(1, 2)]
            if any(n % max(mine, 1) for n, mine in blocks):
                return f"the sizes of {self} do not divide those of a tensor of {list(self.outer)}"
            return ""
        own = self.outer[max(self.lacking, 0) :]
        if self.lacking >= 0 and all(mine in (1, whole) for mine, whole in zip(self.size, own, strict=True)):
            return ""
        size = [1] * self.lacking + list(self.size)
        return (
            f"{self.name}{size} does not line up with a tensor of {list(self.outer)}: along each dim it would have to "
            "be as long, or 1"
        )

    def size_in(self, size: Sequence[int]) -> list[int] | None:
        """Returns the size of the inner tensor where the wrapper has another size of as many dims; None where it is
        unknown.

        >>> FieldMap("scale", "broadcast", (4, 1), (4, 6)).size_in((8, 2))
        [8, 1]
        """
        if len(size) != len(self.outer) or self.lacking < 0 or (self.has_blocks and self.lacking):
            return None
        found = []
        for dim in range(self.lacking, len(size)):
            try:
                elements = self[dim]
            except CannotFollow:
                return None
            if not self.has_blocks:
                found.append(size[dim] if elements else 1)
            elif not elements or size[dim] % elements:
                return None
            else:
                found.append(size[dim] // elements)
        return found


def dim_of(outer: Sequence[int], dim: int) -> int:
    """Returns a dim, counted from the first.

    Raises:
        IndexError: There is no such dim.
    """
    found = dim + len(outer) if dim < 0 else dim
    if not 0 <= found < len(outer):
        raise IndexError(
            f"dim {dim} of a tensor of {list(outer)}, which has the dims {-len(outer)} to {len(outer) - 1}"
        )
    return found


MOST_KEPT = 1024
"""So many maps are kept for a class."""


def field_maps(wrapper: Any, names: Sequence[str], sizes: Sequence[Sequence[int]]) -> tuple[FieldMap, ...]:
    """Returns the maps of inner tensors of a wrapper whose class declares `views=`.

    Args:
        wrapper: The wrapper.
        names: The names of the inner tensors.
        sizes: Their sizes.
    """
    declaration, outer = wrapper.__wrapper_declaration__, wrapper.shape
    kept: dict[object, tuple[FieldMap, ...]] = wrapper._field_maps
    key = (outer, *names, *sizes)
    try:
        return kept[key]
    except KeyError:
        maps = _maps(declaration, names, sizes, outer)
        if len(kept) < MOST_KEPT:
            kept[key] = maps
        return maps
    except TypeError:  # symbols have no hash
        return _maps(declaration, names, sizes, outer)


def _maps(
    declaration: Declaration, names: Sequence[str], sizes: Sequence[Sequence[int]], outer: Sequence[int]
) -> tuple[FieldMap, ...]:
    pairs = zip(names, sizes, strict=True)
    return tuple(FieldMap(name, declaration.how_viewed(name), size, outer) for name, size in pairs)


def share_of(wrapper: torch.Tensor, name: str, dim: int) -> Fraction:
    """Returns how far an inner tensor goes along one dim where the wrapper goes one step.

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
    field, declaration = getattr(wrapper, name), Declaration.of(type(wrapper))
    if declaration is None or declaration.fallback == "each":  # views act on every inner tensor alike
        if field.shape[dim : dim + 1] == wrapper.shape[dim : dim + 1]:
            return Fraction(1)
        what = "rows" if dim == 0 else f"length along dim {dim}"
        sizes = f"{name}{list(field.shape)} does not have the {what} of a tensor of {list(wrapper.shape)}"
        raise CannotFollow(sizes)
    if declaration.views is None:
        raise CannotFollow(
            f'{type(wrapper).__name__} declares no views="broadcast", so nothing says what a row of it is'
        )
    return field_maps(wrapper, [name], [field.shape])[0].share(dim)


def rows_of(wrapper: torch.Tensor, name: str) -> Fraction:
    """Returns how many rows of an inner tensor go with one row of the wrapper: `share_of` along dim 0.

    >>> from subclass_aot import Int8Weight
    >>> weight = Int8Weight(torch.ones(4, 3, dtype=torch.int8), torch.ones(1, 3))
    >>> int(rows_of(weight, "codes")), int(rows_of(weight, "scale"))
    (1, 0)
    """
    return share_of(wrapper, name, 0)


def is_kept(wrapper: torch.Tensor, name: str) -> bool:
    """Returns whether a class declares an inner tensor to be the same for every view of a tensor."""
    declaration = Declaration.of(type(wrapper))
    return declaration is not None and declaration.how_viewed(name) == "keep"
