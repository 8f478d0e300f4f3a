"""Access paths: how generated code gets to an object."""

from __future__ import annotations

from subclass_aot.engine.objects import AccessPath, Entry, Named
from subclass_aot.engine.objects.access_path import Pinned
from subclass_aot.engine.tables import Table


def test_a_step_further_is_another_path() -> None:
    path = AccessPath("args", (0,))
    assert path.then("x").then(1) == AccessPath("args", (0, "x", 1)) and path.steps == (0,)
    entry = Entry(3, Table("items"), "a")
    assert AccessPath(entry).then(2) == (entry, (2,))


def test_objects_that_stay_are_compared_by_identity() -> None:
    """The objects may have an `==` of their own, as tensors and arrays have."""
    assert Pinned(1) != Pinned(1) and AccessPath(Pinned([])) != AccessPath(Pinned([]))
    assert Named("self.head") == Named("self.head") != Named("self")
    assert Entry(0, Table("elements"), 1) == Entry(0, Table("elements"), 1) != Entry(0, Table("members"), 1)
