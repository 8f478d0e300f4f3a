"""Where the numbers come from."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path

import torch

import subclass_aot
from subclass_aot import _native, hooks


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
        "native": "on" if hooks.one_call_pays else "off",
        "accelerator": ", ".join(_accelerated()) or "off",
    }


def is_accelerated() -> bool:
    """Whether all parts of the accelerator run."""
    return set(_parts().values()) == {"C++"}


def config() -> str:
    """What runs in C++ and what in Python, without the place of the built file on this machine."""
    return "\n".join(line for line in _native.show_config().splitlines() if "/" not in line and os.sep not in line)


def _accelerated() -> list[str]:
    return [part for part, where in _parts().items() if where == "C++"]


def _parts() -> dict[str, str]:
    """Where each part of the accelerator runs; the comparing of Python objects is none of them, and runs in C."""
    said = re.findall(r"^(\w+)\b.*:(?: in)? (C\+\+|C|Python)$", _native.show_config(), re.MULTILINE)
    return {part: where for part, where in said if part not in ("exact", "comparing")}


def _processor() -> str:
    """The processor's name where the system tells it (Linux), else its kind."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
