"""A Python value is the one that was traced if it is equal to the last bit, and of the same class."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from typing import Any

import numpy
import pytest

from subclass_aot.engine.objects.comparisons import elements_of, items_of, same_constant, same_contents, same_keys


class Number(int):
    """A number with attributes beside it."""


def number(unit: Any) -> Number:
    made = Number(3)
    made.unit = unit  # type: ignore[attr-defined]
    return made


class Loud(list[Any]):
    """A list that looks like another one."""

    def __iter__(self) -> Any:
        return iter([7])


class LoudDict(dict[Any, Any]):
    def keys(self) -> Any:
        raise AssertionError

    values = items = __iter__ = keys


class Unfriendly:
    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "make",
    [
        lambda: 1,
        lambda: math.nan,
        lambda: -0.0,
        lambda: (1, [2.5, math.nan], "a"),
        lambda: {1, "a"},
        lambda: numpy.array([1.0, math.nan]),
        lambda: number("cm"),
        lambda: 2**70,
        lambda: frozenset({1.5}),
        lambda: {"a": 1},
    ],
)
def test_equal_ones(make: Any) -> None:
    assert same_constant(make(), make())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ((0.0,), (-0.0,)),
        ([1], (1,)),
        ([1], [1, 2]),
        ({1}, {True}),
        (math.nan, 1.0),
        (numpy.array([1]), numpy.array([2])),
        (numpy.array([1]), numpy.array([1.0])),
        (numpy.array([0.0]), numpy.array([-0.0])),
        (numpy.ones((2, 1)), numpy.ones((1, 2))),
        (numpy.ones((2, 2)), numpy.ones((2, 2), order="F")),
        (number("cm"), number("m")),
        (number(1), number(True)),
        (Unfriendly(), Unfriendly()),
    ],
)
def test_other_ones(one: Any, other: Any) -> None:
    assert not same_constant(one, other) and not same_constant(other, one)


def test_what_cannot_be_compared_is_compared_by_identity() -> None:
    value = Unfriendly()
    assert same_constant(value, value)


@pytest.mark.parametrize("make", [list, deque, Loud])
def test_long_lists_are_compared_below_their_classes(make: Any) -> None:
    holder = make([1, -0.0])
    assert elements_of(holder) == [1, 0.0]
    assert same_contents(holder, (0, 1), (1, -0.0))
    for other in [(1, 0.0), (1,), (1, -0.0, 2), (-0.0, 1), (True, -0.0)]:
        assert not same_contents(holder, tuple(range(len(other))), other)


@pytest.mark.parametrize("make", [dict, OrderedDict, LoudDict])
def test_long_dicts_are_compared_below_their_classes(make: Any) -> None:
    holder = make([("a", 1.0), (1, "b")])
    assert items_of(holder) == ["a", 1.0, 1, "b"]
    assert same_keys(holder, ("a", 1)) and same_contents(holder, ("a", 1), (1.0, "b"))
    assert not same_keys(holder, (1, "a")) and not same_keys(holder, ("a", True)) and not same_keys(holder, ("a",))
    assert same_keys({(1, 2): 0}, ((1, 2),)) and not same_keys({(1, 2.0): 0}, ((1, 2),))
    assert not same_contents(holder, ("a", True), (1.0, "b")) and not same_contents(holder, ("a", 1), (1, "b"))
    assert not same_contents(holder, ("a",), (1.0,))
