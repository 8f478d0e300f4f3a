"""What follows from an outcome as data."""

from __future__ import annotations

import pytest

from subclass_aot.engine.objects import AccessPath
from subclass_aot.engine.outcome import Outcome
from subclass_aot.engine.outcome.recipes import Change, Given, Leaf, Literal, New, NewObject, Recipe, Tuple, Weak
from subclass_aot.engine.tables import Table

ITEMS, ELEMENTS = Table("items"), Table("elements")


def outcome(result: Recipe, new: tuple[NewObject, ...] = (), changes: tuple[Change, ...] = ()) -> Outcome:
    return Outcome(result, new, (AccessPath("args"),) if changes else (), changes, ())


@pytest.mark.parametrize(
    ("found", "literals"),
    [
        (outcome(Literal(1)), [1]),
        (outcome(Tuple(tuple, (Literal(1), Leaf(0), Tuple(tuple, (Literal(2), Weak(New(0), "ref")))))), [1, 2]),
        (outcome(New(0), (NewObject(dict, tables=((ITEMS, ((Literal(3), Literal(4)),)),)),)), [3, 4]),
        (outcome(New(0), (NewObject(dict, parts=(Literal(5), Leaf(0))),)), [5]),
        (outcome(Leaf(0), changes=(Change(0, "args", ITEMS, (Literal(0),), ((Literal(6), Literal(7)),)),)), [6, 7]),
        (outcome(Given(0)), []),
    ],
)
def test_values_that_are_the_same_at_each_call(found: Outcome, literals: list[int]) -> None:
    """Keys that are removed are among those of before, and not here."""
    assert sorted(found.literals) == literals


def test_paths_that_are_assigned() -> None:
    changes = (
        Change(0, "args[0]", ITEMS, (), ((Literal("k"), Leaf(0)), (Leaf(1), Leaf(2)))),
        Change(1, "self.cache", ELEMENTS, (), ((Literal(3), Leaf(3)),), True),
        Change(2, "self", Table("attributes"), (Literal("gone"),), ((Literal("last"), Leaf(4)),)),
    )
    assert outcome(Leaf(0), changes=changes).assigned_paths == {"args[0]['k']", "self.cache[3]", "self.last"}


def test_results_only() -> None:
    assert outcome(New(0), (NewObject(list),)).is_plain
    assert not Outcome(Given(0), (), (AccessPath("args"),), (), ()).is_plain
