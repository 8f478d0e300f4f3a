"""Writes lines of a guard."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple


class _Element(NamedTuple):
    """An element of a tuple: the local of that, the position, and how many elements it has."""

    local: str
    position: int
    length: int


class Elements:
    """Expressions of elements of tuples, which are written as one where they follow one another.

    >>> elements = Elements()
    >>> a, b, c = elements.of("kept", 3)
    >>> a, elements.listing([a, b, c]), elements.listing([b, c, "x", a])
    ('kept[0]', '*kept', '*kept[1:3], x, kept[0]')
    """

    def __init__(self) -> None:
        self._known: dict[str, _Element] = {}

    def of(self, name: str, count: int) -> list[str]:
        """Returns the expressions of all elements of the tuple in a local."""
        found = {f"{name}[{i}]": _Element(name, i, count) for i in range(count)}
        self._known |= found
        return list(found)

    def knows(self, name: str) -> bool:
        """Returns whether this is the expression of an element."""
        return name in self._known

    def listing(self, names: Sequence[str]) -> str:
        """Returns expressions with commas between. A weight has hundreds of leaves, and each would be an index."""

        def run(at: tuple[int, str]) -> tuple[str, int]:
            position, name = at
            element = self._known.get(name)
            return (name, -position) if element is None else (element.local, element.position - position)

        listed = []
        for _, group in itertools.groupby(enumerate(names), run):
            members = [name for _, name in group]
            first = self._known.get(members[0])
            if first is None or len(members) == 1:
                listed += members
            elif len(members) == first.length:
                listed.append(f"*{first.local}")
            else:
                listed.append(f"*{first.local}[{first.position}:{first.position + len(members)}]")
        return ", ".join(listed)
