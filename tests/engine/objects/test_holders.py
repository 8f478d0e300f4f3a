"""What a walk notes of objects that hold others."""

from __future__ import annotations

import types
from typing import Any

import pytest

from subclass_aot.engine.objects import AccessPath, Entry, Holder
from subclass_aot.engine.objects.access_path import Pinned
from subclass_aot.engine.objects.nodes import ValueAt
from subclass_aot.engine.tables import Table


@pytest.mark.parametrize(
    ("access_path", "parent"),
    [
        (AccessPath("args"), None),
        (AccessPath(Pinned([])), None),
        (AccessPath(Entry(0, Table("items"), "a")), 0),
        (AccessPath(Entry(7, Table("items"), "a"), (1, "x")), 7),
    ],
)
def test_where_an_object_was_reached_from(access_path: AccessPath, parent: int | None) -> None:
    assert Holder("x", [], access_path, False).parent == parent


@pytest.mark.parametrize(
    ("value", "entries", "bare"),
    [
        (types.SimpleNamespace(), [], True),
        (types.SimpleNamespace(a=1), [("a", ValueAt(1))], False),
        (type("Marker", (), {})(), [], True),
        ([], [], False),
        ({}, [], False),
        (type("Mine", (list,), {})(), [], True),
    ],
)
def test_objects_that_are_used_for_what_they_are(value: Any, entries: Any, bare: bool) -> None:
    """An empty list is a place to put something; an object without attributes is a mark."""
    tables = [(Table("attributes"), entries), (Table("elements"), [])]
    assert Holder("x", value, AccessPath("x"), False, tables).is_bare is bare


def test_holders_do_not_share_tables() -> None:
    one, other = Holder("x", [], AccessPath("x"), False), Holder("y", [], AccessPath("y"), False)
    one.tables.append((Table("elements"), []))
    assert other.tables == [] and one != Holder("x", one.value, AccessPath("x"), False, one.tables), (
        "compared by identity"
    )
