"""Where the numbers come from."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch

import subclass_aot
from subclass_aot import native as _native
from subclass_aot.base import hooks


def describe() -> dict[str, object]:
    """Describes the machine and the versions, for the JSON file and the line above the table."""
    return {
        "date": f"{datetime.date.today():%d.%m.%Y}",
        "commit": commit(),
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


def commit() -> str:
    """Returns the short name of the commit that is measured, and whether files have changed since."""
    changes = _git("status", "--porcelain", "-uno", "--", "subclass_aot", "benchmarks")
    return _git("rev-parse", "--short=8", "HEAD") + (" and changes" if changes else "") or "unknown"


def _git(*arguments: str) -> str:
    root = Path(__file__).resolve().parent.parent
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True).stdout.strip()


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
