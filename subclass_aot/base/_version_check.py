"""The check that the installed torch is one this library knows; done when this module is imported.

The library leans on a few private names of torch (all of them in `_torch`). An older torch lacks some of them and
would fail far from the cause, so it is refused. A newer one is likely to work, and whoever has it may try: it is warned
of. `subclass_aot/__init__.py` imports this module before any other.
"""

from __future__ import annotations

import re
import warnings

import torch

from subclass_aot.errors import UnsupportedTorchError

LOWEST = (2, 11)
"""The first supported torch, as (major, minor)."""

NEWEST = (2, 15)
"""The last torch that the tests were run with. Newer ones run with a warning."""

_REFUSAL = """\
subclass_aot supports torch >={lowest}, and torch {found} is installed.
It uses private names of torch, which change between releases. Install a newer one:

    pip install "torch>={lowest}"
"""

_WARNING = """\
subclass_aot is tested with torch {lowest} to {newest}, and torch {found} is installed. It uses private names of \
torch, which change between releases. If a program fails, try it with torch {newest}: pip install "torch=={newest}.*"\
"""


def check_torch(version: str) -> None:
    """Raises for a torch that is too old, and warns of one that is too new to be known.

    Args:
        version: A version as in `torch.__version__`, with or without a local part.

    Raises:
        UnsupportedTorchError: The version is older than the supported ones, or is no version.

    >>> check_torch("2.13.0+cpu")
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    found = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    names = {"lowest": _dotted(LOWEST), "newest": _dotted(NEWEST), "found": version}
    if found < LOWEST:
        raise UnsupportedTorchError(_REFUSAL.format(**names))
    if found > NEWEST:
        warnings.warn(_WARNING.format(**names), stacklevel=4)  # above this module and the package: who imports it


def _dotted(numbers: tuple[int, int]) -> str:
    return ".".join(map(str, numbers))


check_torch(torch.__version__)
