"""How long a run takes at best."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field

import torch

from subclass_aot.cost.devices import Device, device_of
from subclass_aot.cost.profiling.timeline import Timeline, Work
from subclass_aot.errors import ProfileError

_NO_DEVICE = """Nobody said which device the run is on, so its time is not known.
  Instead: sa.profile(..., device="H100"), or report.seconds("H100")."""


@dataclass(frozen=True)
class Times:
    """How long a run takes at best: no operator is faster than its products, its bytes or a launch.

    Attributes:
        seconds: In all.
        by_bound: By what bounds an operator: "compute", "memory", "launch" or "network".
        by_phase: By phase.
        by_operator: By operator, the longest first.
        mfu: The part of the peak of the device that products reach at most.
    """

    seconds: float
    by_bound: dict[str, float]
    by_phase: dict[str, float]
    by_operator: dict[str, float] = field(repr=False)
    mfu: float


def times_of(timeline: Timeline, device: str | Device | None) -> Times:
    """Returns how long a run takes at best on a device, one operator after the other.

    Args:
        timeline: The run.
        device: The device, or its name.

    Raises:
        ProfileError: There is none.
    """
    if device is None:
        raise ProfileError(_NO_DEVICE)
    known = device_of(device)
    bounds: collections.Counter[str] = collections.Counter()
    phases: collections.Counter[str] = collections.Counter()
    operators: collections.Counter[str] = collections.Counter()
    ideal = 0.0
    for work in timeline.work:
        parts = _parts(work, known)
        longest = max(parts, key=parts.__getitem__)
        seconds = parts[longest]
        if seconds:
            bounds[longest] += seconds  # type: ignore[assignment]
            phases[work.phase] += seconds  # type: ignore[assignment]
            operators[work.operator] += seconds  # type: ignore[assignment]
            ideal += parts["compute"]
    whole = float(sum(phases.values()))
    return Times(whole, dict(bounds), dict(phases), dict(operators.most_common()), ideal / whole if whole else 0.0)


def seconds_of(work: Work, device: Device) -> float:
    """Returns how long an operator takes at best.

    Args:
        work: The operator.
        device: The device that it runs on.
    """
    return max(_parts(work, device).values())


def _parts(work: Work, device: Device) -> dict[str, float]:
    """Returns the seconds of an operator by each bound; views and the like, which launch nothing, take none."""
    if work.group:
        return {"compute": 0.0, "network": work.sent / device.link_bandwidth + device.link_latency}
    if not work.moved and not work.flops:
        return {"compute": 0.0}
    switches = torch.backends.cudnn if work.operator in _OF_CUDNN else torch.backends.cuda.matmul
    peak = device.peak(work.dtype or torch.float32, switches.allow_tf32)
    return {
        "compute": work.flops / peak,
        "memory": work.moved / device.bandwidth,
        "launch": device.launch,
    }


_OF_CUDNN = frozenset({"convolution", "convolution_backward", "_cudnn_rnn", "_cudnn_rnn_backward"})
"""Operators that round float32 to tf32 by a switch of their own, which is on by default."""
