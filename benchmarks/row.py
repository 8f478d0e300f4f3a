"""One line of the table: a ratio, and what it ought to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from subclass_aot.testing.benchmark import Comparison, Ratio


@dataclass(frozen=True)
class Target:
    """What a ratio ought to reach.

    >>> Target.faster(8, "unwrap, torch's loop").at_least, Target.within(1.25, "unwrap, hand-written").at_least
    (8, 0.8)
    """

    name: str
    text: str
    at_least: float

    @staticmethod
    def faster(times: float, name: str) -> Target:
        """At least `times` times as fast as the other side."""
        return Target(name, f"{times:g}x faster", times)

    @staticmethod
    def within(times: float, name: str) -> Target:
        """At most `times` times as long as the other side."""
        return Target(name, f"within {times:g}x", 1 / times)


@dataclass(frozen=True)
class Row:
    """A ratio of two sides of one comparison.

    Args:
        subject: What is done.
        case: On what.
        against: The other side.
        ours_us: Median microseconds of this library.
        other_us: Median microseconds of the other side.
        ratio: How many times as fast this library is.
        target: What the ratio ought to be; `None` where it only informs.
    """

    subject: str
    case: str
    against: str
    ours_us: float
    other_us: float
    ratio: Ratio
    target: Target | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the target holds; `None` without one."""
        return None if self.target is None else self.ratio.median >= self.target.at_least


@dataclass(frozen=True)
class Result:
    """A comparison and the rows that are read off it.

    Args:
        subject: What was measured.
        case: On what.
        comparison: The raw times of every side.
        ours: The side that is this library.
        against: The other sides that get a row, each with its target.
        names: How the table calls a side, where not by its name in the comparison.
    """

    subject: str
    case: str
    comparison: Comparison
    ours: str
    against: Mapping[str, Target | None]
    names: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> Iterator[Row]:
        """One row for each of the other sides."""
        times, ours_us = self.comparison, self.comparison.median_us(self.ours)
        for side, target in self.against.items():
            name, ratio = self.names.get(side, side), times.ratio(self.ours, side)
            yield Row(self.subject, self.case, name, ours_us, times.median_us(side), ratio, target)
