"""Taking wrappers apart and putting them together: generated code of this library, of torch, torch's loop, by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import subclass_aot as sa
from benchmarks import by_hand, torch_side
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Comparison, Side, compare

COUNTS = (1, 10, 100, 1000)
DEPTHS = (1, 2, 3)

LOOP, GENERATED, HAND = "torch's loop", "torch's generated code", "hand-written"
_CHECKED = "hand-written, with class checks"
OURS = "subclass_aot.TwoTensor"
THEIRS = "torch's TwoTensor"
UNWRAP_FLOOR = Target.within(1.3, "unwrap against hand-written code")
UNWRAP_LOOP = Target.faster(8, "unwrap against torch's loop")
WRAP_GENERATED = Target.faster(3, "wrap of our TwoTensor against torch's generated code on torch's TwoTensor")


def run(budget: Budget, counts: tuple[int, ...] = COUNTS, depths: tuple[int, ...] = DEPTHS) -> Iterator[Result]:
    """Measures unwrap, wrap, and one after the other, for each count and depth."""
    for depth in depths:
        for count in counts:
            for subject in ("unwrap", "wrap", "unwrap + wrap"):
                times = measured(subject, count, depth, budget)
                yield from _results(subject, f"{count} wrappers, depth {depth}", times)


@functools.cache
def measured(subject: str, count: int, depth: int, budget: Budget) -> Comparison:
    """The ways to do `subject` with both classes; measured once, for all tables that read it."""
    both = [_Class(OURS, sa.TwoTensor, count, depth), _Class(THEIRS, torch_side.TwoTensor, count, depth)]
    return compare({name: side for cls in both for name, side in cls.sides(subject).items()}, budget)


def _results(subject: str, case: str, times: Comparison) -> Iterator[Result]:
    """Each class against itself the other ways; our class also against torch's generated code on torch's class."""
    for cls in (OURS, THEIRS):
        targets: dict[str, Target | None] = {LOOP: None, GENERATED: None, HAND: None}
        if subject == "unwrap":
            targets |= {LOOP: UNWRAP_LOOP, HAND: UNWRAP_FLOOR, _CHECKED: None}
        against = {on(way, cls): target for way, target in targets.items()}
        names = {on(way, cls): way for way in targets}
        if cls == OURS and subject != "unwrap":
            against[on(GENERATED, THEIRS)] = WRAP_GENERATED if subject == "wrap" else None
        if torch_side.generated is None:
            against = {side: target for side, target in against.items() if not side.startswith(GENERATED)}
        yield Result(subject, f"{case}, {cls}", times, on("plan", cls), against, names)


class _Class:
    """The ways to take apart and rebuild `count` trees of one class."""

    def __init__(self, name: str, cls: type, count: int, depth: int) -> None:
        self.name = name
        self.values = [tree(cls, depth) for _ in range(count)]
        self.plan = sa.FlattenPlan.of(self.values)
        self.leaves = self.plan.unwrap(self.values)
        with FakeTensorMode():
            metas = torch_side.metas_of([tree(cls, depth) for _ in range(count)])
        by_constructor = cls is not sa.TwoTensor
        self.ways: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
            "plan": (self.plan.unwrap, self.plan.wrap),
            LOOP: (torch_side.unwrap_in_a_loop(metas), torch_side.wrap_in_a_loop(metas)),
            HAND: (
                by_hand.unwrap(count, depth),
                by_hand.wrap(cls, count, depth, by_constructor=by_constructor),
            ),
        }
        self.unwrap_checked = by_hand.unwrap(count, depth, check=cls)
        self.round_trip: Callable[[Any], Any] | None = None
        if torch_side.generated is not None:
            self.ways[GENERATED] = torch_side.unwrap_generated(metas), torch_side.wrap_generated(metas)
            self.round_trip = torch_side.unwrap_and_wrap_generated(metas)

    def sides(self, subject: str) -> dict[str, Side]:
        """The sides of one comparison."""
        sides = {}
        for way, (unwrap, wrap) in self.ways.items():
            if subject == "unwrap":
                side = Side(unwrap, (self.values,))
            elif subject == "wrap":
                side = Side(wrap, (self.leaves,))
            elif way == GENERATED and self.round_trip is not None:
                side = Side(_copy_then(self.round_trip), (self.values,))
            else:
                side = Side(_in_sequence(unwrap, wrap), (self.values,))
            sides[on(way, self.name)] = side
        if subject == "unwrap":
            sides[on(_CHECKED, self.name)] = Side(self.unwrap_checked, (self.values,))
        return sides


def tree(cls: Any, depth: int) -> Any:
    """A tree of two-tensors over leaves of `float32[4, 4]`."""
    if depth == 0:
        return torch.randn(by_hand.SIZE)
    return cls(tree(cls, depth - 1), tree(cls, depth - 1))


def on(way: str, cls: str) -> str:
    """The name of a side."""
    return f"{way} on {cls}"


def _in_sequence(unwrap: Callable[[Any], Any], wrap: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: wrap(unwrap(list(values)))


def _copy_then(round_trip: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Torch's wrapper empties its list of arguments, so it needs a new one each time; all ways get one."""
    return lambda values: round_trip(list(values))
