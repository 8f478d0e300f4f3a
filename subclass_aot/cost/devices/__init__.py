"""Devices as data: what programs ask of one, and what it can do at the most."""

from subclass_aot.cost.devices.amounts import bytes_of as bytes_of
from subclass_aot.cost.devices.device import Device as Device
from subclass_aot.cost.devices.device import claim_of as claim_of
from subclass_aot.cost.devices.device import device_of as device_of
from subclass_aot.cost.devices.measure import measure as measure

__all__ = ["Device", "bytes_of", "device_of", "measure"]
