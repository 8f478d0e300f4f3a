"""Compares a long list or dict of plain values with what it was, at a time that hardly depends on its length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from subclass_aot.base import exact, hooks
from subclass_aot.engine.objects.comparisons import same_constant


class SameTable:
    """Returns whether a list, tuple or dict of Python's own classes holds these plain values, in this order.

    Most calls bring the very same values, which is one call of a C function. Others that are equal count as well.

    Args:
        keys: The keys, texts, where it is a dict; else None.
        values: The values.
    """

    def __init__(self, keys: Sequence[str] | None, values: Sequence[object]) -> None:
        self._keys = None if keys is None else list(keys)
        self._values = list(values)
        self._classes = [*map(type, values)]
        self._is_exact = not any(map(_has_twins, values))
        made: Any = self._values if keys is None else dict(zip(keys, values, strict=True))
        self._items: tuple[object, ...] = exact.items_of(made)

    def __call__(self, table: Any) -> bool:
        """Compares one, whose class is known."""
        if hooks.one_call_pays and type(table) is not tuple and hooks.same_items((table, self._items)):
            return True
        if self._keys is not None and [*table] != self._keys:
            return False
        values = table if self._keys is None else table.values()
        if [*map(type, values)] != self._classes:
            return False
        if self._is_exact:
            return [*values] == self._values
        return all(map(same_constant, values, self._values))


def _has_twins(value: object) -> bool:
    """Returns whether a number is equal to another one, as zero is, or unequal to itself."""
    if isinstance(value, complex):
        return _has_twins(value.real) or _has_twins(value.imag)
    return isinstance(value, float) and (value != value or not value)
