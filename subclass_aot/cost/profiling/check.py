"""A report beside a real run of the same program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.cost.profiling.allocator import Change, bytes_free, changes_of
from subclass_aot.cost.profiling.figures import Figures
from subclass_aot.cost.profiling.words import amount
from subclass_aot.errors import ProfileError
from subclass_aot.meta import Operation

_NOT_HERE = """There is no {device} on this machine that the program could run on.
  Instead: report.check(device="cpu"), which predicts the program for the CPU of this machine, and compares that."""

_NO_ROOM = """The run would hold {peak} on {device} at its peak, and {there} are free there.
  Instead: check a report of a smaller batch, or of a smaller model."""

_MOST = 3000
"""How many changes of two lists may be other ones; what comes after so many is not compared one by one."""

_SMALLEST = 0.001
"""The part of the peak from which on a difference is one."""


class Difference(NamedTuple):
    """Where a run holds other memory than was predicted.

    Attributes:
        phase: The phase.
        module: The module, as the report has it.
        operator: The operator, likewise; "" for what is only freed.
        line: The user's line.
        by: The operator that has the largest of the memory that was not predicted; "" if there is none.
        more: The bytes that the run holds more from here on.
        meanwhile: The bytes that it holds more until then, at the most.
    """

    phase: str
    module: str
    operator: str
    line: str
    by: str
    more: int
    meanwhile: int

    def __str__(self) -> str:
        """Returns the difference in words."""
        stays = 20 * abs(self.more) >= abs(self.meanwhile)
        nbytes = self.more if stays else self.meanwhile
        said = f"the run holds {amount(abs(nbytes))} {'more' if nbytes > 0 else 'less'}"
        said += " from here on" if stays else " for a moment"
        names = [self.phase, self.module and f"in {self.module}", self.operator and f"by {self.operator}"]
        where = " ".join(name for name in names if name) + (f", {self.line}" if self.line else "")
        return f"{where}: {said}" + (f" ({self.by})" if self.by else "")


@dataclass
class Check:
    """What a report says, and what is so.

    Attributes:
        predicted: The report of the run without data.
        observed: The report of a run on real tensors; its products, operator by operator.
        device: Where that ran.
        peak: The most bytes that torch's allocator gave out, and those that were there before.
        phases: Of each phase, the peak that was predicted, and the real one.
        differences: Where memory differs, in the order of the run.
        tolerance: How far peaks may be apart, as a part of the real one.
    """

    predicted: Figures
    observed: Figures
    device: torch.device
    peak: int
    phases: dict[str, tuple[int, int]]
    differences: list[Difference]
    tolerance: float

    def __repr__(self) -> str:
        found = "as predicted" if self else "not as predicted"
        return f"<Check on {self.device}: {found}, peak {amount(self.peak)}, predicted {amount(self.predicted.peak)}>"

    @property
    def peak_error(self) -> float:
        """How much larger the predicted peak is than the real one, as a part of it."""
        return self.predicted.peak / self.peak - 1 if self.peak else float(self.predicted.peak > 0)

    @property
    def flops(self) -> dict[str, tuple[int, int]]:
        """Of each phase, the products that were predicted, and the real ones."""
        both = self.predicted, self.observed
        found = {phase: (both[0].flops(phase), both[1].flops(phase)) for phase in Operation.PHASES}
        return {phase: each for phase, each in found.items() if any(each)}

    @property
    def first(self) -> Difference | None:
        """Where memory first differs; None if it does not."""
        return self.differences[0] if self.differences else None

    @property
    def first_product(self) -> str:
        """Which product first differs, in words; "" if none does."""
        lists = []
        for report in (self.predicted, self.observed):
            lists.append([(work.phase, work.operator, work.flops) for work in report.timeline.work if work.flops])
        mine, real = lists
        if mine == real:
            return ""
        i = next((i for i, (a, b) in enumerate(zip(mine, real, strict=False)) if a != b), min(map(len, lists)))
        words = [
            "none" if i >= len(each) else f"{each[i][1]} of {amount(each[i][2], 'FLOP')} in {each[i][0]}"
            for each in lists
        ]
        return f"product {i + 1}: {words[0]} predicted, {words[1]} in the run"

    def __bool__(self) -> bool:
        """Returns whether the peaks are near and the products equal."""
        return abs(self.peak_error) <= self.tolerance and all(mine == real for mine, real in self.flops.values())

    def __str__(self) -> str:
        """Returns both as a table."""
        lines = [
            f"{'as' if self else 'not as'} predicted on {self.device}: the peak is {amount(self.predicted.peak)} "
            f"predicted and {amount(self.peak)} in a run ({self.peak_error:+.2%})",
            "",
            f"{'':24}{'predicted':>14}{'real':>14}{'error':>10}",
        ]
        rows = [(f"peak, {phase}", "B", *pair) for phase, pair in self.phases.items()]
        rows += [(f"products, {phase}", "FLOP", *pair) for phase, pair in self.flops.items()]
        for name, unit, mine, real in rows:
            error = f"{mine / real - 1:+.2%}" if real else ""
            lines.append(f"{name:24}{amount(mine, unit):>14}{amount(real, unit):>14}{error:>10}")
        lines.append("")
        if self.first is not None:
            lines.append(f"first other memory  {self.first}")
            largest = max(self.differences, key=lambda each: max(abs(each.more), abs(each.meanwhile)))
            if largest is not self.first:
                lines.append(f"largest of {len(self.differences):<8} {largest}")
        if self.first_product:
            lines.append(f"first other product {self.first_product}")
        lines += [f"assumed             {each}" for each in self.predicted.assumed]
        lines += [f"not known           {each}" for each in self.predicted.unknown]
        return "\n".join(lines).rstrip()


def check(report: Figures, device: str | torch.device | None = None, tolerance: float = 0.05) -> Check:
    """Runs the program of a report on real tensors, and compares: see `Report.check`."""
    run = report.again()
    if device is not None:
        moved = run.on(torch.device(device))
        asked = moved.setting.claim or torch.device(device)
        _there(asked)
        if report.timeline.device != asked or any(each.device != asked for each in report.timeline.allocations):
            run, report = moved, moved.report()
    for each in {each.device for each in report.timeline.allocations}:
        _there(each)
    where = report.timeline.device or torch.device("cpu")
    free = bytes_free(where)
    if free is not None and report.peak > free:
        raise ProfileError(_NO_ROOM.format(peak=amount(report.peak), device=where, there=amount(free)))
    devices = [where] if where.type == "cuda" else []
    if devices:
        _torch.cuda.free_library_workspaces()
    with torch.random.fork_rng(devices):
        changes = changes_of(run.with_data(), where)
        observed = run.with_data().report()
    curve = [observed.timeline.before()]
    for change in changes:
        curve.append(curve[-1] + change.nbytes)
    phases, differences = _compared(report, changes, curve, where)
    return Check(report, observed, where, max(curve), phases, differences, tolerance)


def _there(device: torch.device) -> None:
    """Raises an error if a device is not on this machine."""
    if device.type == "cuda" and torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count():
        return
    if device.type != "cpu":
        raise ProfileError(_NOT_HERE.format(device=device))


def _compared(
    report: Figures, changes: Sequence[Change], real: Sequence[int], device: torch.device
) -> tuple[dict[str, tuple[int, int]], list[Difference]]:
    """Returns the peaks by phase, and the differences.

    Args:
        report: What was predicted.
        changes: What the allocator did.
        real: The bytes before the first change, and after each.
        device: Where.
    """
    timeline, curve = report.timeline, report.timeline.curve()
    least = _SMALLEST * max(real)
    made = [
        (n, timeline.allocations[i], change) for n, (i, change) in enumerate(timeline.events, 1) if 10 * change > least
    ]
    mine = [(n, Change(change, {each.operator: 0})) for n, each, change in made if timeline.is_here(each)]
    others = [(n, change) for n, change in enumerate(changes, 1) if 10 * change.nbytes > least]
    slack = 1 << 20 if device.type == "cuda" else 0  # a large block is not split for a rest of up to so many bytes
    peaks: dict[str, list[int]] = {}
    found = []
    before, i, j, maker = real[0] - curve[0], 0, 0, 1
    pairs = _matched([change for _, change in mine], [change for _, change in others], slack)
    starts = [(mine[a - 1][0], others[b - 1][1].operators[_operator(mine[a - 1][1])]) for a, b in pairs]
    for at, also_at in [*starts, (len(curve), len(changes))]:  # from before the one operator until before the next
        if also_at <= j and at < len(curve):  # one operator made several, or the first makes this
            continue
        mine_then, real_then = curve[i:at], real[j : also_at + 1]
        pair = peaks.setdefault(timeline.phase_at(maker), [0, 0])
        pair[:] = max(pair[0], *mine_then), max(pair[1], *real_then)
        after = real_then[-1] - mine_then[-1]
        meanwhile = max(real_then) - max(mine_then) - before
        if max(abs(after - before), abs(meanwhile)) > least:
            found.append(_difference(report, maker, changes[j:also_at], after - before, meanwhile))
        i, j, before, maker = at - 1, also_at, after, at
    return {phase: (peaks[phase][0], peaks[phase][1]) for phase in Operation.PHASES if phase in peaks}, found


def _difference(report: Figures, event: int, changes: Sequence[Change], more: int, meanwhile: int) -> Difference:
    moment = report.moment(event)
    largest = max(changes, key=lambda change: change.nbytes, default=Change(0, {}))
    by = _operator(largest) if largest.nbytes > 0 and largest.operators else ""
    return Difference(moment.phase, moment.module, moment.operator, moment.line, by, more, meanwhile)


def _matched(mine: Sequence[Change], real: Sequence[Change], slack: int) -> list[tuple[int, int]]:
    """Returns how much of two lists there was whenever both did the same, for as many as possible.

    It is the shortest edit of the one list into the other, by Myers. What gives memory back is left out of lists: its
    order is less certain, and changes what is held alone.

    Args:
        mine: Memory that is given out, each to one operator.
        real: Other such.
        slack: How much larger one of the others may be.
    """

    def same(i: int, j: int) -> bool:
        wanted, found = mine[i].nbytes, real[j].nbytes
        near = wanted == found or (found > 1 << 20 and 0 < found - wanted <= slack)
        return near and _operator(mine[i]) in real[j].operators

    farthest = {1: 0}  # by how many more of `mine` than of `real` are taken: how many of `mine`
    history = []
    for edits in range(_MOST):
        history.append(dict(farthest))
        for k in range(-edits, edits + 1, 2):
            i = _reached(farthest, k, edits)
            while i < len(mine) and i - k < len(real) and same(i, i - k):
                i += 1
            farthest[k] = i
            if i >= len(mine) and i - k >= len(real):
                return _way_back(history, i, k)
    i, k = max(((i, k) for k, i in farthest.items()), key=lambda each: 2 * each[0] - each[1])
    return _way_back(history, i, k)


def _operator(change: Change) -> str:
    """Returns the innermost operator."""
    return list(change.operators)[-1]


def _reached(farthest: dict[int, int], k: int, edits: int) -> int:
    """Returns where an edit begins: one of `real` is left out, or else one of `mine`."""
    if k == -edits or (k != edits and farthest[k - 1] < farthest[k + 1]):
        return farthest[k + 1]
    return farthest[k - 1] + 1


def _way_back(history: list[dict[int, int]], i: int, k: int) -> list[tuple[int, int]]:
    """Returns what was the same on the way to a place."""
    found = []
    for edits in range(len(history) - 1, -1, -1):
        before = history[edits]
        start = _reached(before, k, edits)
        found += [(each, each - k) for each in range(i, start, -1)]
        if k == -edits or (k != edits and before[k - 1] < before[k + 1]):
            k, i = k + 1, before[k + 1]
        else:
            k, i = k - 1, before[k - 1]
    return found[::-1]
