"""Sums of steps, against all of them."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subclass_aot.meta import strided_sets
from subclass_aot.meta.strided_sets import Term, TooHard, covers, has_common_place, has_place_twice, is_sum

TERMS = st.lists(st.tuples(st.integers(0, 24), st.integers(0, 5)), max_size=4)


def sums(terms: list[Term]) -> set[int]:
    """All sums of steps."""
    counts = itertools.product(*[range(times + 1) for _, times in terms])
    return {sum(n * step for n, (step, _) in zip(each, terms, strict=True)) for each in counts}


@given(TERMS, st.integers(-3, 120))
def test_a_sum(terms: list[Term], wanted: int) -> None:
    assert is_sum(terms, wanted) == (wanted in sums(terms))


@given(TERMS)
def test_a_place_that_is_there_twice(terms: list[Term]) -> None:
    assert has_place_twice(terms) == (len(sums(terms)) < math.prod(times + 1 for _, times in terms))


@given(TERMS, st.integers(0, 40), TERMS, st.integers(0, 40))
def test_a_place_in_common(one: list[Term], first: int, other: list[Term], second: int) -> None:
    common = {first + n for n in sums(one)} & {second + n for n in sums(other)}
    assert has_common_place(one, first, other, second) == bool(common)


@given(TERMS, TERMS, st.integers(-2, 30))
def test_what_is_said_to_be_a_part_is_one(terms: list[Term], places: list[Term], begins: int) -> None:
    assert covers(terms, places, begins) <= ({begins + n for n in sums(places)} <= sums(terms))


def test_the_halves_of_a_large_cache() -> None:
    """Ten thousand blocks of keys, and of values: in halves, and in turns."""
    inner = [(1, 127), (128, 7), (1024, 15)]
    half = [*inner, (16_384, 9_999)]
    assert not has_common_place(half, 0, half, 16_384 * 10_000) and has_common_place(half, 0, half, 16_384 * 9_999)
    turns = [*inner, (32_768, 9_999)]
    assert not has_common_place(turns, 0, turns, 16_384) and has_common_place(turns, 0, turns, 16_383)


def test_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    hard = [(999_983 + 17 * i * i, 40) for i in range(5)]
    monkeypatch.setattr(strided_sets, "_STEPS", 50)
    with pytest.raises(TooHard):
        is_sum(hard, 123_456_789)
