"""Where the numbers come from."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import torch

import subclass_aot
from subclass_aot import _native


def describe() -> dict[str, object]:
    """The machine and the versions, for the JSON file and the line above the table."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "optree": version("optree"),
        "subclass_aot": subclass_aot.__version__,
        "native": "on" if _native.ONE_CALL_PAYS else "off",
        "accelerator": ", ".join(_accelerated()) or "off",
    }


def is_accelerated() -> bool:
    """Whether all parts of the accelerator run."""
    return _accelerated() == list(_native.PARTS)


def config() -> str:
    """What runs in C++ and what in Python, without the place of the built file on this machine."""
    return "\n".join(line for line in _native.show_config().splitlines() if "/" not in line and os.sep not in line)


def _accelerated() -> list[str]:
    return [part for part in _native.PARTS if _native.accelerator(part) is not None]


def _processor() -> str:
    """The processor's name where the system tells it (Linux), else its kind."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
