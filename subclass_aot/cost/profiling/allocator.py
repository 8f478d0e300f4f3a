"""What torch's own allocators say of a run on real tensors, and how much memory this machine has."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile


class Change(NamedTuple):
    """What an allocator gave out or took back.

    Attributes:
        nbytes: Bytes; negative for what it took back.
        operators: The operators that ran then, one within the other, as "addmm", and for each how many changes there
            were before it.
    """

    nbytes: int
    operators: dict[str, int]


def changes_of(run: Callable[[], object], device: torch.device | None = None) -> list[Change]:
    """Runs a function, and returns what the allocator of a device did meanwhile, as torch's profiler noted it.

    Args:
        run: The function.
        device: The device; a CPU if left out.
    """
    device = device or torch.device("cpu")
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, profile_memory=True) as profiled:
        kept = run()  # what it returns is there until the end
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    del kept
    noted: Any = profiled.profiler.kineto_results.events()
    events = sorted((event.start_ns(), i, event) for i, event in enumerate(noted))
    running: list[tuple[int, str, int]] = []  # of operators: the end, the name, and how many changes came before
    found: list[Change] = []
    for start, _, event in events:
        name = event.name()
        while running and running[-1][0] < start:
            running.pop()
        if "::" in name and not name.startswith("autograd::"):
            running.append((start + event.duration_ns(), name.removeprefix("aten::"), len(found)))
        elif name == "[memory]" and event.nbytes() and _is_of(event, device):
            operators = {name: before for _, name, before in running if name not in _MAKERS}
            found.append(Change(event.nbytes(), operators))
    return found


_MAKERS = frozenset({"empty", "empty_strided", "empty_like", "resize_"})
"""Operators by which others get memory."""


def _is_of(event: Any, device: torch.device) -> bool:
    kind = str(event.device_type()).rpartition(".")[2].lower()
    return kind == device.type and (device.type == "cpu" or event.device_index() == (device.index or 0))


def real_peak(run: Callable[[], object], base: int = 0) -> int:
    """Returns the most bytes of torch's allocator on the CPU during `run()`, on top of what is there before.

    Args:
        run: The function.
        base: The bytes that are there before.
    """
    now = peak = base
    for change in changes_of(run):
        now += change.nbytes
        peak = max(peak, now)
    return peak


def bytes_free(device: torch.device) -> int | None:
    """Returns how many bytes a run may take on a device; None where nobody says it.

    Args:
        device: A CUDA device that is there, or the CPU.
    """
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + kept)
    amounts = [_in_system(), *_in_group()]
    return min((n for n in amounts if n is not None), default=None)


def _in_system() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # this is no Linux
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def _in_group() -> list[int]:
    """Returns what a container leaves, if it has a limit."""
    found = []
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            limit, now = (Path("/sys/fs/cgroup", name).read_text().strip() for name in (most, used))
        except OSError:
            continue
        if limit.isdigit():  # without a limit it is "max"
            found.append(max(int(limit) - int(now), 0))
    return found
