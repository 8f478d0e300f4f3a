"""What `torch.cuda` says of a device that is claimed and not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.cost.devices import Device

_OF_CAPABILITY = {(8, 6): 1536, (8, 9): 1536, (12, 0): 1536}
"""Threads that a multiprocessor has at the most, where it is not 2048. Source: the CUDA C++ programming guide."""


class Properties:
    """What `torch.cuda.get_device_properties` gives: as much of it as the profile of a device says.

    Args:
        device: The profile.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.name = device.product or device.name
        self.major, self.minor = device.capability or (0, 0)
        self.total_memory = device.memory
        self.multi_processor_count = device.multiprocessors
        self.warp_size = 32
        self.max_threads_per_multi_processor = _OF_CAPABILITY.get((self.major, self.minor), 2048)
        self.is_integrated = self.is_multi_gpu_board = 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"The profile of {self.name} does not say `{name}`, and no such device is there to ask.")

    def __repr__(self) -> str:
        of = f"name={self.name!r}, major={self.major}, minor={self.minor}, total_memory={self.total_memory >> 20}MB"
        return f"Properties({of}, multi_processor_count={self.multi_processor_count})"


def answers(device: Device, index: int) -> dict[str, Callable[..., Any]]:
    """Returns what stands in place of functions of `torch.cuda`.

    One device is there, and it may have any index. Nothing is allocated on it.

    Args:
        device: The profile.
        index: The index that is claimed.
    """
    current = [index]

    def exchange(to: int | torch.device) -> int:
        before, number = current[0], to if isinstance(to, int) else torch.device(to).index or 0
        if number >= 0:
            current[0] = number
        return before

    def number(*args: object, **kwargs: object) -> int:
        return 0

    def nothing(*args: object, **kwargs: object) -> None:
        return None

    return {
        "is_available": lambda: True,
        "is_initialized": lambda: False,  # else programs save and set the state of its generator
        "accelerator_is_available": lambda: False,  # else optimizers read the streams of a device
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: current[0],
        "cudnn_is_acceptable": lambda tensor: False,  # no layer is to put its weights into one memory
        "set_device": lambda to: None if to is None else exchange(to) and None,
        "exchange_device": exchange,
        "maybe_exchange_device": exchange,
        "get_device_name": lambda device_=None: device.product or device.name,
        "get_device_capability": lambda device_=None: device.capability,
        "get_device_properties": lambda device_=None: Properties(device),
        "is_bf16_supported": lambda including_emulation=True: (
            including_emulation or (device.capability or (0, 0)) >= (8, 0)
        ),
        "is_tf32_supported": lambda: (device.capability or (0, 0)) >= (8, 0),
        "mem_get_info": lambda device_=None: (device.memory, device.memory),
        "synchronize": nothing,
        "empty_cache": nothing,
        "ipc_collect": nothing,
        "reset_peak_memory_stats": nothing,
        **dict.fromkeys(_ALLOCATED, number),
    }


_ALLOCATED = ["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"]
