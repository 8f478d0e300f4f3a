"""A report as a file: JSON, the pickle that torch's memory viewer reads, a plot."""

from __future__ import annotations

import collections
import importlib.util
import json
import os
import pickle
from typing import Any

from subclass_aot.base._stack import UserFrame
from subclass_aot.base.whole_files import write_whole, written_beside
from subclass_aot.cost.profiling.figures import Figures
from subclass_aot.cost.profiling.timeline import KINDS
from subclass_aot.cost.profiling.words import amount
from subclass_aot.errors import ProfileError
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


def plot(report: Figures, path: Place) -> None:
    """Draws memory over the run by kind, with the phases, the peak and the limit, and products by module.

    Args:
        report: The report.
        path: The picture; its ending says of which kind, as ".png" or ".svg".

    Raises:
        ProfileError: matplotlib is not there.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ProfileError("A plot needs matplotlib. Instead: pip install 'subclass-aot[demo]', and try again.")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=(3, 1.6))
    _draw_memory(report, above)
    _draw_products(report, below)
    with written_beside(path) as part:
        figure.savefig(part, dpi=100)


def rows_by_kind(report: Figures) -> dict[str, list[int]]:
    """Returns the bytes of each kind before the first event and after each."""
    timeline = report.timeline
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


def _unit_of(largest: float, unit: str) -> tuple[float, str]:
    """Returns the factor and the name of the unit in which a number is between 1 and 1000 or so."""
    text = amount(largest, unit)
    return max(largest, 1) / max(float(text.split()[0]), 1e-9), text.split()[1]


def _draw_memory(report: Figures, axes: Any) -> None:
    rows, peak, moment = rows_by_kind(report), report.peak, report.peak_at
    factor, unit = _unit_of(peak, "B")
    length = len(report.timeline.events) + 1
    axes.stackplot(range(length), [[n / factor for n in row] for row in rows.values()], labels=list(rows), step="post")
    top = peak / factor
    memory = report.memory or 0
    limit = memory / factor if 0 < memory < peak * 1.5 else 0.0
    ceiling = max(top, limit)
    begins: list[tuple[int, str]] = []
    for since, phase in report.timeline.phases:  # a checkpoint computes again within backward, many times
        name = "backward" if phase == "recompute" else phase
        if not begins or begins[-1][1] != name:
            begins.append((since, name))
    for (since, phase), until in zip(begins, [*[since for since, _ in begins[1:]], length], strict=True):
        if until - since > length * 0.06:
            axes.axvline(since, color="black", linewidth=0.6, linestyle=":")
            axes.text((since + until) / 2, ceiling * 1.09, phase, ha="center", fontsize=8)
    axes.plot([moment.event], [top], "kv", markersize=5)
    axes.annotate(f"peak {amount(peak)}", (moment.event, top), (6, -12), textcoords="offset points", fontsize=8)
    if limit:
        axes.axhline(limit, color="red", linewidth=1)
        words = f"memory {amount(memory)}"
        axes.text(length - 1, limit, words, color="red", fontsize=8, ha="right", va="bottom")
    axes.set(xlim=(0, length - 1), ylim=(0, ceiling * 1.16), xlabel="allocations and releases, in the order of the run")
    axes.set_ylabel(f"memory ({unit})")
    axes.legend(fontsize=7, ncols=len(rows), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)


def _draw_products(report: Figures, axes: Any) -> None:
    by_phase = {phase: report.flops(phase, by="module", depth=3) for phase in Operation.PHASES}
    total: collections.Counter[str] = collections.Counter()
    for found in by_phase.values():
        total.update(found)
    names = [name for name, _ in total.most_common(8)][::-1]
    factor, unit = _unit_of(max(total.values(), default=1), "FLOP")
    left = [0.0] * len(names)
    for phase, found in by_phase.items():
        widths = [found.get(name, 0) / factor for name in names]
        if any(widths):
            axes.barh([name or "(outside of modules)" for name in names], widths, left=left, label=phase)
            left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_xlabel(f"products ({unit})")
    axes.tick_params(labelsize=7)
    if names:
        axes.legend(
            fontsize=7, ncols=len(Operation.PHASES), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False
        )
