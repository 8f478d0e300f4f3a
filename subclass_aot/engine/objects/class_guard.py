"""The part of a guard that compares the methods of a class, and which names it has."""

from __future__ import annotations

from typing import Any

from subclass_aot.base import exact
from subclass_aot.engine.objects.holders import Entries
from subclass_aot.engine.objects.nodes import Node, ValueAt
from subclass_aot.engine.tables import Table


def is_method(node: Node) -> bool:
    """Returns whether what stands in a class is a method that is compared by identity, and not walked."""
    return isinstance(node, ValueAt) and Table.is_method(node.value)


class ClassGuard:
    """What a class had when a call was traced.

    A call compares all attributes by identity, in one call of a C function. Only where that fails, since data was
    assigned or Python has put something there itself, names and methods are looked at one by one.

    Args:
        cls: The class.
        entries: What stood in it.

    Attributes:
        kept: What `same_items` compares.
    """

    def __init__(self, cls: type, entries: Entries) -> None:
        self.kept: tuple[Any, ...] = cls, exact.items_of(cls)
        self._cls = cls
        self._names = {key for key, _ in entries}
        self._methods = {key: node.value for key, node in entries if is_method(node)}  # type: ignore[union-attr]

    def fits(self) -> bool:
        """Returns whether the class has these names, and these very methods."""
        items = exact.items_of(self._cls)
        now = dict(Table("class").read(self._cls))
        fits = now.keys() == self._names and all(now[name] is method for name, method in self._methods.items())
        if fits:
            self.kept = self._cls, items
        return fits
