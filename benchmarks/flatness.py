"""What one leaf costs among ten and among ten thousand."""

from __future__ import annotations

from collections.abc import Iterator

import subclass_aot as sa
from benchmarks import by_hand
from benchmarks.leaves import tree
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Side, compare

LEAVES = (10, 100, 1000, 10_000)
FLAT = Target.within(1.5, "cost per leaf, against that of 10 leaves")


def run(budget: Budget, numbers: tuple[int, ...] = LEAVES) -> Iterator[Result]:
    """Measures each size per leaf, against the smallest and against hand-written code of the same size."""
    wrappers = {number: [tree(sa.TwoTensor, 1) for _ in range(number // 2)] for number in numbers}
    plans = {number: sa.FlattenPlan.of(values) for number, values in wrappers.items()}
    for subject in ("unwrap", "wrap"):
        sides: dict[str, Side] = {}
        for number, plan in plans.items():
            count, values = number // 2, wrappers[number]
            if subject == "unwrap":
                ours = Side(plan.unwrap, (values,), number)
                hand = Side(by_hand.unwrap(count, 1), (values,), number)
            else:
                leaves = plan.unwrap(values)
                ours = Side(plan.wrap, (leaves,), number)
                hand = Side(by_hand.wrap(sa.TwoTensor, count, 1, by_constructor=False), (leaves,), number)
            sides |= {f"{number} leaves": ours, f"hand-written, {number} leaves": hand}
        times = compare(sides, budget)
        for number in numbers:
            against: dict[str, Target | None] = {f"hand-written, {number} leaves": None}
            if number != numbers[0]:
                against = {f"{numbers[0]} leaves": FLAT, **against}
            yield Result(f"{subject}, per leaf", f"{number} leaves", times, f"{number} leaves", against)


def run_planning(budget: Budget, numbers: tuple[int, ...] = LEAVES[:3]) -> Iterator[Result]:
    """Measures what it costs per leaf to make a plan and both its functions, once per signature."""
    sides = {}
    for number in numbers:
        values = [tree(sa.TwoTensor, 1) for _ in range(number // 2)]
        sides[f"{number} leaves"] = Side(_plan, (values,), number)
    times = compare(sides, budget)
    for number in numbers[1:]:
        subject, ours = "make a plan, per leaf", f"{number} leaves"
        yield Result(subject, ours, times, ours, {f"{numbers[0]} leaves": FLAT})


def _plan(values: list[object]) -> object:
    plan = sa.FlattenPlan.of(values)
    return plan.unwrap, plan.wrap
