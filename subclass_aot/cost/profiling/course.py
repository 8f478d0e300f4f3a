"""The course of a run, as a picture has it: memory by kind, where each moment is on an axis, and the phases."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from subclass_aot.cost.devices import Device
from subclass_aot.cost.profiling.roofline import seconds_of
from subclass_aot.cost.profiling.timeline import KINDS, Timeline, Work


@dataclass(frozen=True)
class Course:
    """Where the moments of a run are on an axis.

    Attributes:
        at: The place before the first event, and after each; bytes or seconds.
        starts: Where each operator starts, and where the last one ends.
        work: The operators.
        label: What the axis has.
        unit: In what, "B" or "s".
        in_steps: Whether memory stays as it is from one moment to the next; else it rises as it is allocated.
    """

    at: list[float]
    starts: list[float]
    work: Sequence[Work]
    label: str
    unit: str
    in_steps: bool

    @property
    def end(self) -> float:
        """Where the axis ends."""
        return max(self.at[-1], self.starts[-1])

    def phases(self) -> Iterator[tuple[str, float, float]]:
        """Yields the phases in the order of the run, each with its begin and its end."""
        for phase, group in itertools.groupby(range(len(self.work)), lambda i: self.work[i].phase):
            members = [*group]
            yield phase, self.starts[members[0]], self.starts[members[-1] + 1]


def over_bytes(timeline: Timeline) -> Course:
    """Returns the course of a run over the bytes that were allocated so far.

    Memory rises along its line, as much as is allocated, and falls at one place.

    Args:
        timeline: The run.
    """
    here = [timeline.is_here(each) for each in timeline.allocations]
    made = (max(change, 0) if here[i] else 0 for i, change in timeline.events)
    at = [float(n) for n in itertools.accumulate(made, initial=0)]
    return Course(
        at, [*(at[each.event] for each in timeline.work), at[-1]], timeline.work, "bytes allocated so far", "B", False
    )


def over_time(timeline: Timeline, device: Device) -> Course:
    """Returns the course of a run over the seconds that it takes at best, one operator after the other.

    What an operator allocates is there from its start on; what is released after it goes at its end.

    Args:
        timeline: The run.
        device: The device that it runs on.
    """
    work = timeline.work
    starts = [*itertools.accumulate((seconds_of(each, device) for each in work), initial=0.0)]
    at, begun, is_over = [0.0], 0, True
    for before, (_, change) in enumerate(timeline.events):
        while begun < len(work) and work[begun].event <= before:
            begun, is_over = begun + 1, False
        is_over = is_over or change < 0
        at.append(starts[begun if is_over else begun - 1])
    return Course(at, starts, work, f"time at best on {device.name}", "s", True)


def rows_by_kind(timeline: Timeline) -> dict[str, list[int]]:
    """Returns the bytes of each kind before the first event and after each."""
    changes: dict[int, list[tuple[int, str]]] = collections.defaultdict(list)
    now: dict[int, tuple[str, int]] = {}
    live: collections.Counter[str] = collections.Counter()
    for i, allocation in enumerate(timeline.allocations):
        if not timeline.is_here(allocation):
            continue
        for since, kind in allocation.kinds[1:]:
            changes[since].append((i, kind))
        if allocation.born < 0:
            now[i] = allocation.kinds[0][1], allocation.nbytes
            live[allocation.kinds[0][1]] += allocation.nbytes
    rows: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for event in range(len(timeline.events) + 1):
        if event:
            i, change = timeline.events[event - 1]
            if timeline.is_here(timeline.allocations[i]):
                kind, held = now.get(i, (timeline.allocations[i].kinds[0][1], 0))
                now[i] = kind, held + change
                live[kind] += change
        for i, kind in changes.get(event, ()):
            if i in now:
                old, held = now[i]
                now[i] = kind, held
                live[old] -= held
                live[kind] += held
        for kind, row in rows.items():
            row.append(live[kind])
    return {kind: row for kind, row in rows.items() if any(row)}


def seen(at: Sequence[float], heights: Sequence[float], columns: int = 1000) -> list[int]:
    """Returns the moments that a picture of so many columns shows: of each its first, highest, lowest and last.

    Args:
        at: The place of each moment, none before the one before it.
        heights: The memory at each.
        columns: How many columns there are.

    >>> seen([0, 0, 1, 1, 1, 1, 2], [0, 3, 4, 9, 1, 5, 2], columns=2)
    [0, 1, 2, 3, 4, 5, 6]
    >>> seen([0, 0, 1, 1, 1, 1, 2], [0, 3, 4, 9, 1, 5, 2], columns=1)
    [0, 3, 5, 6]
    """
    last, found = at[-1] or 1.0, set()
    for _, group in itertools.groupby(range(len(at)), lambda i: int(at[i] / last * columns)):
        members = [*group]
        found |= {members[0], max(members, key=heights.__getitem__), min(members, key=heights.__getitem__), members[-1]}
    return sorted(found)
