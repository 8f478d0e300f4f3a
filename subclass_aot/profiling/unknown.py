"""What the figures of a run leave out."""

from __future__ import annotations

from subclass_aot.devices import Device
from subclass_aot.profiling.timeline import Timeline

_WITH_WORKSPACE = {
    "mkldnn_rnn_layer": "oneDNN keeps one for backward, by a formula that was found on one CPU",
    "mkldnn_rnn_layer_backward": "oneDNN, by a formula that was found on one CPU",
    "convolution": "oneDNN and cuDNN choose an algorithm, and its workspace, as they run",
    "convolution_backward": "oneDNN and cuDNN choose an algorithm, and its workspace, as they run",
    "_cudnn_rnn": "cuDNN keeps a reserve for backward",
    "_cudnn_rnn_backward": "cuDNN",
}


def unknown_of(timeline: Timeline, device: Device | None) -> list[str]:
    """Returns what the figures leave out, one in a line.

    Args:
        timeline: The run.
        device: The device that it claims to be on.
    """
    times: dict[str, int] = {}
    for work in timeline.work:
        if work.operator in _WITH_WORKSPACE:
            times[work.operator] = times.get(work.operator, 0) + 1
    found = [f"the workspace of {name} ({n}x): {_WITH_WORKSPACE[name]}" for name, n in times.items()]
    if device is not None and device.type == "cuda":
        found.append("what CUDA and its libraries take beside torch's allocator, and what that keeps unused")
        if device.unseen:
            found.append(
                f"whether {', '.join(device.unseen)} of {device.name} are so: read, and never seen on hardware"
            )
    return found
