"""What a run computes, keeps and holds, as data: a report is this, and what can be made of it."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from subclass_aot.base._stack import UserFrame
from subclass_aot.cost.devices import Device
from subclass_aot.cost.profiling.parts import dense_parts
from subclass_aot.cost.profiling.roofline import Times, times_of
from subclass_aot.cost.profiling.timeline import Allocation, Timeline, Work
from subclass_aot.cost.profiling.words import amount
from subclass_aot.errors import ProfileError

_A_BLOCK = """The report is of a block, which cannot be run again.
  Instead: profile a function: sa.profile(step, model, batch)."""

BY = ("kind", "module", "operator", "line", "name", "phase")


class Moment(NamedTuple):
    """A moment of a run.

    Attributes:
        event: How many events there were before it.
        phase: The phase.
        module: The name of the module that makes memory then.
        operator: The operator.
        line: The user's line.
    """

    event: int
    phase: str
    module: str
    operator: str
    line: str

    def __str__(self) -> str:
        """Returns the moment in words."""
        parts = [self.phase, self.module and f"in {self.module}", self.operator and f"by {self.operator}"]
        return " ".join(part for part in parts if part) + (f", {self.line}" if self.line else "")


@dataclass
class WrapperBytes:
    """The two sizes of a wrapper.

    Attributes:
        name: The name of the parameter.
        cls: The name of its class.
        logical: What a dense tensor of its size and dtype would have, in bytes.
        held: What its inner tensors have.
    """

    name: str
    cls: str
    logical: int
    held: int


@dataclass
class Figures:
    """What a run computes, keeps and holds.

    All memory is in bytes, and of one device.

    Attributes:
        timeline: The run, as data.
        device: The device that the figures are about; None if no profile of one was named.
        memory: The bytes that there are; None if nobody said it.
        wrappers: Parameters that are wrappers.
        assumed: What the run took values to be, one in a line.
        compiled: The lines that call functions made by `torch.compile`, which run as in eager mode.
        uncounted: Operators that may have products and have no formula, and how often they ran.
        unknown: What else the figures leave out.
        run: What was run; None for a block, which cannot be run again.
    """

    timeline: Timeline
    device: Device | None = None
    memory: int | None = None
    wrappers: list[WrapperBytes] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    compiled: list[str] = field(default_factory=list)
    uncounted: dict[str, int] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    run: Any = field(default=None, repr=False)
    _formulas: dict[tuple[str, int | None], Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        where = f" on {self.device.name}" if self.device is not None else ""
        return f"<{type(self).__name__}: peak {amount(self.peak)}{where}, {self.peak_at}>"

    def again(self) -> Any:
        """Returns what was run.

        Raises:
            ProfileError: It was a block.
        """
        if self.run is None:
            raise ProfileError(_A_BLOCK)
        return self.run

    @property
    def peak(self) -> int:
        """The most bytes that are held at once."""
        return max(self.timeline.curve())

    @property
    def peak_at(self) -> Moment:
        """When that is first."""
        curve = self.timeline.curve()
        return self.moment(curve.index(max(curve)))

    @property
    def fits(self) -> bool | None:
        """Whether the peak is not over the memory; None if nobody said how much there is."""
        return None if self.memory is None else self.peak <= self.memory

    @property
    def saved(self) -> int:
        """The bytes that are there for backward alone as the first forward ends."""
        return self.owners("kind", "forward").get("saved", 0)

    def moment(self, event: int) -> Moment:
        """Returns what happens at an event.

        Args:
            event: How many events there were.
        """
        timeline = self.timeline
        if not event:
            return Moment(0, "before", "", "", "")
        made = timeline.allocations[timeline.events[event - 1][0]]
        return Moment(event, timeline.phase_at(event), made.module, made.operator, in_words(made.line))

    def owners(self, by: str = "kind", when: str | int = "peak", depth: int | None = None) -> dict[str, int]:
        """Returns the bytes that are held at one moment, by owner, the largest first; they add up to all that is held.

        Args:
            by: "kind", "module", "operator", "line", "name" (of parameters and inputs) or "phase" (that made it).
            when: "peak", "end", a phase, for the end of it, or how many events there were.
            depth: How many parts of the name of a module are kept.

        Raises:
            ProfileError: There is no such `by` or `when`.
        """
        if by not in BY:
            raise ProfileError(f"There are no owners by {by!r}. Instead: write one of {', '.join(map(repr, BY))}.")
        event = self._event_of(when)
        found: collections.Counter[str] = collections.Counter()
        for allocation, nbytes in self.timeline.live_at(event):
            found[_owner(allocation, by, event, depth)] += nbytes
        return dict(found.most_common())

    def _event_of(self, when: str | int) -> int:
        if isinstance(when, int):
            return when
        if when == "peak":
            return self.peak_at.event
        event = len(self.timeline.events) if when == "end" else self.timeline.end_of(when)
        if event is None:
            phases = dict.fromkeys(name for _, name in self.timeline.phases)
            known = ", ".join(map(repr, ("peak", "end", *phases)))
            raise ProfileError(f"The run has no moment {when!r}. Instead: write one of {known}.")
        return event

    def flops(self, phase: str | None = None, by: str | None = None, depth: int | None = None) -> Any:
        """Returns floating-point operations.

        Args:
            phase: Of one phase; of all if left out.
            by: "phase", "module", "operator" or "line": then a dict.
            depth: How many parts of the name of a module are kept.
        """
        return self._sum(lambda work: work.flops, phase, by, depth)

    def bytes_moved(self, phase: str | None = None, by: str | None = None, depth: int | None = None) -> Any:
        """Returns the bytes that operators read and write, as `flops` does."""
        return self._sum(lambda work: work.moved, phase, by, depth)

    def communication(self, phase: str | None = None, by: str | None = None, depth: int | None = None) -> Any:
        """Returns the bytes that this process sends to others, as `flops` does."""
        return self._sum(lambda work: work.sent, phase, by, depth)

    def _sum(self, amount: Callable[[Work], int], phase: str | None, by: str | None, depth: int | None) -> Any:
        work: Iterable[Work] = self.timeline.work
        if phase is not None:
            work = [each for each in work if each.phase == phase]
        if by is None:
            return sum(map(amount, work))
        if by not in ("phase", "module", "operator", "line"):
            raise ProfileError(f"There is no sum by {by!r}. Instead: write 'phase', 'module', 'operator' or 'line'.")
        found: collections.Counter[str] = collections.Counter()
        for each in work:
            value = getattr(each, by)
            key = in_words(value) if by == "line" else shortened(value, depth) if by == "module" else value
            if amount(each):
                found[key] += amount(each)
        return dict(found.most_common())

    @property
    def parameters(self) -> int:
        """The bytes of parameters."""
        return self.owners("kind", 0).get("parameter", 0)

    @property
    def gradients(self) -> int:
        """The bytes of gradients as backward ends; zero if it was not run."""
        return self._at_end_of("backward", "gradient")

    @property
    def optimizer_state(self) -> int:
        """The bytes of the state of optimizers at the end."""
        return self.owners("kind", "end").get("optimizer", 0)

    def _at_end_of(self, phase: str, kind: str) -> int:
        return self.owners("kind", phase).get(kind, 0) if self.timeline.end_of(phase) is not None else 0

    def seconds(self, device: str | Device | None = None) -> Times:
        """Returns how long the run takes at best: a roofline for each operator, one after the other.

        Args:
            device: The device; that of the report if left out.

        Raises:
            ProfileError: There is none.
        """
        return times_of(self.timeline, self.device if device is None else device)


def _owner(allocation: Allocation, by: str, event: int, depth: int | None) -> str:
    if by == "kind":
        return allocation.kind_at(event)
    if by == "line":
        return in_words(allocation.line) or f"({allocation.kind_at(event)})"
    if by == "module":
        return shortened(allocation.module, depth)
    if by == "name":
        return allocation.name or f"({allocation.kind_at(event)})"
    return str(getattr(allocation, by)) or f"({allocation.kind_at(event)})"


def shortened(module: str, depth: int | None) -> str:
    """Returns the first parts of the name of a module."""
    return module if depth is None else ".".join(module.split(".")[:depth])


def in_words(line: UserFrame | None) -> str:
    """Returns a line as `file.py:12`; "" for none."""
    return "" if line is None else f"{line[0].rpartition('/')[2]}:{line[1]}"


def sizes_of(name: str, tensor: torch.Tensor) -> WrapperBytes:
    """Returns the two sizes of a wrapper."""
    parts = {id(part): part.nbytes for part in dense_parts(tensor)}
    return WrapperBytes(name, type(tensor).__name__, int(tensor.numel()) * tensor.dtype.itemsize, sum(parts.values()))
