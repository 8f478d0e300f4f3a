"""Compares the plain values among the attributes of an object with what they were, in one call."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from subclass_aot.engine.objects.comparisons import same_kept


class SameAttributes:
    """Returns whether an object's `__dict__` has these values at these names.

    Most calls find the very same values, which takes two calls of C functions. Others that are equal count as well.
    Modules of one kind share it: the layers of a model mostly differ in their tensors alone.

    Args:
        length: How many attributes there are; None where others do not count.
        names: The names; at least two.
        values: The values. None of them may change.
    """

    __slots__ = ("_length", "_read", "_values")

    def __init__(self, length: int | None, names: Sequence[str], values: Sequence[object]) -> None:
        self._length = length
        self._read = operator.itemgetter(*names)
        self._values = tuple(values)

    def __call__(self, attributes: dict[str, Any]) -> bool:
        """Compares those of one object."""
        if type(attributes) is not dict or self._length not in (None, len(attributes)):
            return False
        try:
            found = self._read(attributes)
        except KeyError:
            return False
        return all(map(operator.is_, self._values, found)) or all(map(same_kept, self._values, found))
