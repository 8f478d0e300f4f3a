"""Ways: how generated code gets to an object."""

from __future__ import annotations

from subclass_aot.objects import Entry, Named, Way
from subclass_aot.objects.ways import Pinned
from subclass_aot.tables import Table


def test_a_step_further_is_another_way() -> None:
    way = Way("args", (0,))
    assert way.then("x").then(1) == Way("args", (0, "x", 1)) and way.steps == (0,)
    entry = Entry(3, Table("items"), "a")
    assert Way(entry).then(2) == (entry, (2,))


def test_objects_that_stay_are_compared_by_identity() -> None:
    """The objects may have an `==` of their own, as tensors and arrays have."""
    assert Pinned(1) != Pinned(1) and Way(Pinned([])) != Way(Pinned([]))
    assert Named("self.head") == Named("self.head") != Named("self")
    assert Entry(0, Table("elements"), 1) == Entry(0, Table("elements"), 1) != Entry(0, Table("members"), 1)
