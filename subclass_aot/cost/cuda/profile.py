"""Which device a claim of `cuda` stands for."""

from __future__ import annotations

import threading

from subclass_aot.cost.devices import Device, device_of

DEFAULT = "H100"
"""What a claim of `cuda` stands for where there is no such device and nobody has said more."""


class _Claimed(threading.local):
    """The device that was claimed last in this thread.

    It stays when the block ends: a backward after it, and what a checkpoint computes again there, runs on that device.
    """

    profile: Device | None = None


claimed = _Claimed()


def profile() -> Device:
    """Returns the device that tensors on `cuda` claim to be on."""
    return claimed.profile or device_of(DEFAULT)
