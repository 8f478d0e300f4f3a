"""What a run did, as data: allocations, the events that make and free them, and work."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from subclass_aot.base._stack import UserFrame
from subclass_aot.base.texts import counted

KINDS = (
    "parameter", "buffer", "input", "constant", "optimizer", "gradient", "saved", "output", "temporary",
    "communication", "workspace",
)  # fmt: skip
"""What memory is for, in the order of plots. "constant": tensors from before that are none of the model's. "saved":
for backward. "communication": what collectives gather into and scatter from, and parameters that are gathered.
"workspace": for a kernel while it runs, or what a library keeps for its kernels."""


@dataclass
class Allocation:
    """Memory of one storage.

    Attributes:
        nbytes: Its size as it is made, in bytes, rounded up as the device's allocator does.
        device: Where it is.
        kinds: From which event on it is of which kind.
        born: The event that made it; -1 for what is there before.
        operator: The operator that made it; "" for what is there before.
        module: The name of the module that it belongs to; of a parameter, of the module that has it.
        line: The user's line that made it.
        phase: The phase it was made in; "before" for what is there before.
        name: The name of a parameter, a buffer or an input.
    """

    nbytes: int
    device: torch.device
    kinds: list[tuple[int, str]]
    born: int = -1
    operator: str = ""
    module: str = ""
    line: UserFrame | None = None
    phase: str = "before"
    name: str = ""

    def kind_at(self, event: int) -> str:
        """Returns the kind that it has after an event."""
        found = self.kinds[0][1]
        for since, kind in self.kinds:
            if since <= event:
                found = kind
        return found


class Work(NamedTuple):
    """One run of an operator.

    Attributes:
        phase: See `subclass_aot.meta.Operation`.
        module: The name of the module.
        line: The user's line.
        operator: Its name, without the overload.
        dtype: Of its result.
        flops: Floating-point operations.
        moved: Bytes that it reads and writes.
        event: How many events there were before.
        sent: Bytes that this process sends to others.
        group: How many processes take part; 0 for what is no communication.
        device: Where it runs.
    """

    # More than ten attributes: the columns of a table.

    phase: str
    module: str
    line: UserFrame | None
    operator: str
    dtype: torch.dtype | None
    flops: int
    moved: int
    event: int
    sent: int
    group: int
    device: torch.device | None


class Timeline:
    """What a run did.

    Attributes:
        allocations: All memory that it had.
        events: In their order, which allocation changes by how many bytes.
        phases: Which phase begins at which event.
        work: The operators that ran.
        device: The device whose memory the figures are about; None until there is some.
    """

    def __init__(self, device: torch.device | None = None, rounding: int = 1) -> None:
        self.allocations: list[Allocation] = []
        self.events: list[tuple[int, int]] = []
        self.phases: list[tuple[int, str]] = []
        self.work: list[Work] = []
        self.device = device
        self._rounding = rounding

    def __repr__(self) -> str:
        counts = {"allocation": len(self.allocations), "event": len(self.events), "operator": len(self.work)}
        return f"<Timeline: {', '.join(counted(count, what) for what, count in counts.items())}>"

    def rounded(self, nbytes: int) -> int:
        """Returns what the allocator of the device takes for so many bytes."""
        return -(-nbytes // self._rounding) * self._rounding

    def before(self) -> int:
        """Returns the bytes that are there before the first event."""
        return sum(each.nbytes for each in self.allocations if each.born < 0 and self.is_here(each))

    def is_here(self, allocation: Allocation) -> bool:
        """Returns whether memory is on the device that the figures are about."""
        return self.device is None or allocation.device == self.device

    def curve(self) -> list[int]:
        """Returns the bytes before the first event, and after each."""
        here = [self.is_here(each) for each in self.allocations]
        changes = [change if here[i] else 0 for i, change in self.events]
        return list(itertools.accumulate(changes, initial=self.before()))

    def live_at(self, event: int) -> Iterator[tuple[Allocation, int]]:
        """Yields the memory that is there after so many events, and its bytes then."""
        held = {i: each.nbytes for i, each in enumerate(self.allocations) if each.born < 0}
        for i, change in self.events[:event]:
            held[i] = held.get(i, 0) + change
        for i, nbytes in held.items():
            if nbytes and self.is_here(self.allocations[i]):
                yield self.allocations[i], nbytes

    def phase_at(self, event: int) -> str:
        """Returns the phase after so many events."""
        i = bisect.bisect_right([since for since, _ in self.phases], max(event - 1, 0)) - 1
        return self.phases[i][1] if i >= 0 else "before"

    def end_of(self, phase: str) -> int | None:
        """Returns how many events there were when forward first ended, or another phase last; None without it."""
        ends = [since for since, _ in self.phases[1:]] + [len(self.events)]
        found = [end for (_, name), end in zip(self.phases, ends, strict=True) if name == phase]
        return None if not found else found[0 if phase == "forward" else -1]
