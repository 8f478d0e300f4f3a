"""What the tests need to know of the torch they run with."""

from __future__ import annotations

import re

import torch

TORCH: tuple[int, int] = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))  # type: ignore[assignment]
"""The installed torch, as (major, minor)."""

FIRST_WITH_ACCELERATOR = (2, 13)
"""The first torch that the accelerator is built and tested with: in torch 2.11 the nodes of autograd's graph are of
another kind."""
