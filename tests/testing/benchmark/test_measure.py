"""Timing in turns."""

from __future__ import annotations

from subclass_aot.testing.benchmark import Budget, Comparison, Ratio, Side, compare


def test_sides_take_turns() -> None:
    calls: list[str] = []
    sides = {name: Side(calls.append, (name,)) for name in "ab"}
    budget = Budget(seconds=0.0, block_us=0.0, fewest_rounds=3, most_rounds=3)
    times = compare(sides, budget)
    assert {side: len(us) for side, us in times.microseconds.items()} == {"a": 3, "b": 3}
    rounds = "".join(calls[-12:])  # a call that is not counted, then a block, for each side
    assert all(rounds[i : i + 4] in ("aabb", "bbaa") for i in range(0, 12, 4))


def test_times_per_unit() -> None:
    assert Comparison({"ours": (10.0, 30.0)}).per(10).microseconds == {"ours": (1.0, 3.0)}


def test_ratio_is_that_of_the_rounds() -> None:
    times = Comparison({"ours": (1.0, 2.0, 4.0, 1.0, 1.0), "other": (2.0, 6.0, 4.0, 5.0, 4.0)})
    assert times.ratio("ours", "other") == Ratio(median=3.0, low=2.0, high=4.0)
    assert times.median_us("ours") == 1.0
