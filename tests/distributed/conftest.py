"""One process that is a group of its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import distributed


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """A process group of one rank."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.compiler.reset()  # what was compiled holds the mesh
        distributed.destroy_process_group()
