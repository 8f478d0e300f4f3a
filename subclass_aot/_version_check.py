"""The check that the installed torch is one this library knows; done when this module is imported.

The library leans on a few private names of torch (all of them in `_torch.py`), so a range that is only probably right
would fail far from its cause. `subclass_aot/__init__.py` imports this module before any other.
"""

from __future__ import annotations

import re

import torch

from subclass_aot.errors import UnsupportedTorchError

LOWEST = (2, 13)
"""The first supported torch, as (major, minor)."""

BELOW = (2, 14)
"""The first torch that is not supported any more."""

_MESSAGE = """\
subclass_aot supports torch >={lowest},<{below}, and torch {found} is installed.
It uses private names of torch, which change between releases. Install a supported one:

    pip install "torch>={lowest},<{below}"
"""


def check_torch(version: str) -> None:
    """Raises unless `version` is a supported version of torch.

    Args:
        version: A version as in `torch.__version__`, with or without a local part.

    Raises:
        UnsupportedTorchError: The version is outside the supported range, or is no version.

    >>> check_torch("2.13.0+cpu")
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and LOWEST <= (int(numbers[1]), int(numbers[2])) < BELOW:
        return
    raise UnsupportedTorchError(_MESSAGE.format(lowest=_dotted(LOWEST), below=_dotted(BELOW), found=version))


def _dotted(numbers: tuple[int, int]) -> str:
    return ".".join(map(str, numbers))


check_torch(torch.__version__)
