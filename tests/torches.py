"""What the tests need to know of the torch they run with."""

from __future__ import annotations

import re

import torch

TORCH: tuple[int, int] = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))  # type: ignore[assignment]
"""The installed torch, as (major, minor)."""
