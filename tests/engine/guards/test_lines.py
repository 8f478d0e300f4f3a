"""Expressions of elements of tuples, written as one where they follow one another."""

from __future__ import annotations

import itertools

import pytest

from subclass_aot.engine.guards.lines import Elements


def test_elements_of_a_tuple() -> None:
    assert Elements().of("kept", 2) == ["kept[0]", "kept[1]"] and Elements().of("kept", 0) == []


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["x", "y"], "x, y"),
        (["k[0]", "k[1]", "k[2]"], "*k"),
        (["k[1]", "k[2]"], "*k[1:3]"),
        (["k[1]"], "k[1]"),
        (["k[2]", "k[1]"], "k[2], k[1]"),
        (["k[0]", "k[2]"], "k[0], k[2]"),
        (["k[2]", "j[0]"], "k[2], j[0]"),
        (["j[0]", "j[1]", "k[0]", "k[1]"], "*j, *k[0:2]"),
        (["z[0]", "z[1]"], "z[0], z[1]"),
    ],
)
def test_runs_are_written_as_one(names: list[str], text: str) -> None:
    elements = Elements()
    elements.of("k", 3), elements.of("j", 2)
    assert elements.listing(names) == text


def test_every_listing_means_its_expressions() -> None:
    """The oracle is Python: what is written as one has the same values, in the same order."""
    elements, values = Elements(), {"k": (1, 2, 3), "j": (4, 5), "x": 6}
    known = [*elements.of("k", 3), *elements.of("j", 2), "x"]
    for names in itertools.product(known, repeat=4):
        expected = [eval(name, {}, values) for name in names]
        assert eval(f"[{elements.listing(names)}]", {}, values) == expected
