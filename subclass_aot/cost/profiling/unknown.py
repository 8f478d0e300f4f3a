"""What the figures of a run leave out."""

from __future__ import annotations

from collections.abc import Mapping

from subclass_aot.cost.devices import Device


def unknown_of(workspaces: Mapping[tuple[str, str], int], device: Device | None) -> list[str]:
    """Returns what the figures leave out, one in a line.

    Args:
        workspaces: By operator and what the figure rests on, how often a workspace is not exact.
        device: The device that the run claims to be on.
    """
    found = [f"the workspace of {name} ({n}x): {rests_on}" for (name, rests_on), n in workspaces.items()]
    if device is not None and device.type == "cuda":
        found.append("what CUDA and its libraries take beside torch's allocator, and what that keeps unused")
        if device.unseen:
            found.append(
                f"whether {', '.join(device.unseen)} of {device.name} are so: read, and never seen on hardware"
            )
    return found
