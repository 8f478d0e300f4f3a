"""A report as a file: JSON, the pickle that torch's memory viewer reads."""

from __future__ import annotations

import json
import os
import pickle
from typing import Any

from subclass_aot.base._stack import UserFrame
from subclass_aot.base.whole_files import write_whole
from subclass_aot.cost.profiling.figures import Figures
from subclass_aot.meta import Operation

Place = str | os.PathLike[str]


def as_json(report: Figures) -> str:
    """Returns the figures of a report as JSON; all memory is in bytes."""
    phases = [phase for phase in Operation.PHASES if report.timeline.end_of(phase) is not None]
    found = {
        "device": report.device.name if report.device is not None else str(report.timeline.device),
        "memory": report.memory,
        "fits": report.fits,
        "peak": report.peak,
        "peak_at": report.peak_at._asdict(),
        "owners": {by: report.owners(by) for by in ("kind", "module", "operator", "line")},
        "parameters": report.parameters,
        "gradients": report.gradients,
        "optimizer_state": report.optimizer_state,
        "saved": report.saved,
        "flops": {phase: report.flops(phase) for phase in phases},
        "flops_by_module": report.flops(by="module"),
        "bytes_moved": {phase: report.bytes_moved(phase) for phase in phases},
        "communication": report.communication(),
        "wrappers": [vars(each) for each in report.wrappers],
        "assumed": report.assumed,
        "uncounted": report.uncounted,
        "unknown": report.unknown,
    }
    return json.dumps(found, indent=1)


def write_snapshot(report: Figures, path: Place) -> None:
    """Writes the pickle that torch's memory viewer reads (pytorch.org/memory_viz), as of a CUDA device.

    Args:
        report: The report.
        path: The file.
    """
    timeline, trace = report.timeline, []
    addresses: dict[int, tuple[int, int]] = {}  # of an allocation: its address now, and its bytes
    top = 1 << 32

    def note(i: int, change: int, time: int) -> None:
        nonlocal top
        allocation = timeline.allocations[i]
        frames = _frames(allocation.line, f"{allocation.module} {allocation.operator} ({allocation.kinds[-1][1]})")
        address, held = addresses.pop(i, (0, 0))
        if held:
            trace.append(_event("free_completed", address, held, time, frames))
        if held + change > 0:
            addresses[i] = top, held + change
            trace.append(_event("alloc", top, held + change, time, frames))
            top += -(-(held + change) // 512) * 512

    for i, allocation in enumerate(timeline.allocations):
        if allocation.born < 0 and timeline.is_here(allocation):
            note(i, allocation.nbytes, 0)
    for time, (i, change) in enumerate(timeline.events, 1):
        if timeline.is_here(timeline.allocations[i]):
            note(i, change, time)
    write_whole(path, pickle.dumps({"segments": [], "device_traces": [trace], "allocator_settings": {}}))


def _event(action: str, address: int, size: int, time: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames}


def _frames(line: UserFrame | None, what: str) -> list[dict[str, Any]]:
    own = [] if line is None else [{"filename": line[0], "line": line[1], "name": line[2]}]
    return [{"filename": what, "line": 0, "name": what}, *own]
