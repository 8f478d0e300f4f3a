"""Which device a claim of `cuda` stands for."""

from __future__ import annotations

import functools
import threading

import torch

from subclass_aot.devices import Device, device_of

DEFAULT = "H100"
"""What a claim of `cuda` stands for where the build has no CUDA and nobody has said more."""


class _Claimed(threading.local):
    """The device that was claimed last in this thread.

    It stays when the block ends: a backward after it, and what a checkpoint computes again there, runs on that device.
    """

    profile: Device | None = None


claimed = _Claimed()


def profile() -> Device:
    """Returns the device that tensors on `cuda` claim to be on."""
    return claimed.profile or device_of(DEFAULT)


@functools.lru_cache(maxsize=256)
def claim_of(device: str | torch.device | Device | None) -> tuple[torch.device | None, Device | None]:
    """Returns the torch device that a claim names, and what it stands for, if it says that.

    Args:
        device: A device of torch's, or what `device_of` takes.

    Raises:
        DeviceError: There is no such device.
    """
    if device is None:
        return None, None
    if not isinstance(device, Device):
        try:
            return torch.device(device), None
        except RuntimeError:  # it is no name of torch's
            device = device_of(device)  # type: ignore[arg-type]  # what torch took is returned
    return torch.device(device.type, 0 if device.type == "cuda" else None), device  # type: ignore[arg-type]
