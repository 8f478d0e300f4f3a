"""Tables of objects that are read once, with numbers that are another at each call, such as a learning rate.

What else stands in such a table is compared by identity, name by name, so that another number is no reason to read all
objects anew. The numbers are read at each call, and so are the names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.objects.holders import Entries, Holder
from subclass_aot.engine.objects.nodes import NumberAt
from subclass_aot.engine.tables import Table


@dataclass(frozen=True, slots=True, eq=False)
class NumbersApart:
    """A dict of a table with numbers that change.

    Attributes:
        table: The expression of the dict.
        keys: All its keys; of a part of a dict these.
        numbers: The numbers.
        in_order: Whether it counts in which order its keys came.
        is_part: Whether other keys do not count.
    """

    table: str
    keys: tuple[object, ...]
    numbers: Entries
    in_order: bool
    is_part: bool

    @property
    def others(self) -> list[object]:
        """The keys of what is no such number."""
        numbers = {key for key, _ in self.numbers}
        return [key for key in self.keys if key not in numbers]

    @staticmethod
    def of(name: str, holder: Holder, table: Table, entries: Entries, source: GuardedSource) -> NumbersApart | None:
        """Returns it for one table of an object; None where it has no such number, or is no dict.

        Args:
            name: The local of the object.
            holder: The object.
            table: The table.
            entries: What stands in it.
            source: The function that reads it.
        """
        if not _has_numbers(holder, table, entries):
            return None
        numbers = [entry for entry in entries if isinstance(entry[1], NumberAt)]
        if table.kind == "globals":
            local = source.const(table.mapping(holder.value), "module_globals")
            return NumbersApart(local, tuple(key for key, _ in entries), numbers, False, True)
        if table.kind == "items":
            return NumbersApart(name, tuple(key for key, _ in entries), numbers, True, False)
        keys = tuple(holder.value.__dict__ if table.only is None else table.only)  # some are no entries
        return NumbersApart(f"{name}.__dict__", keys, numbers, False, table.only is not None)


def numbers_apart(holders: Iterable[Holder]) -> set[int]:
    """Returns the numbers of what stands for numbers in such tables of objects that are the same at each call."""
    return {
        node.number
        for holder in holders
        if holder.pinned and not holder.only_grows
        for table, entries in holder.tables
        if _has_numbers(holder, table, entries)
        for _, node in entries
        if isinstance(node, NumberAt)
    }


def _has_numbers(holder: Holder, table: Table, entries: Entries) -> bool:
    is_dict = table.kind in ("attributes", "globals") or table.kind == "items" and type(holder.value) is dict
    has_names = is_dict and all(type(key) is str for key, _ in entries)
    return has_names and any(isinstance(node, NumberAt) for _, node in entries)
