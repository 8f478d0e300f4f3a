"""The states of torch's generators of random numbers, on the CPU and on accelerators that are in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from subclass_aot import _torch

States = tuple[torch.Tensor, list[torch.Tensor]]


def generators() -> States:
    """Gives the states as they are."""
    with _torch.disable_current_modes():
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        return torch.default_generator.get_state(), cuda


def set_generators(states: States) -> None:
    """Puts states back."""
    torch.default_generator.set_state(states[0])
    if states[1]:
        torch.cuda.set_rng_state_all(states[1])


@contextmanager
def drawing_from(states: States) -> Iterator[None]:
    """Within the block, draws go on from other states; afterwards the generators are as they were."""
    before = generators()
    try:
        set_generators(states)
        yield
    finally:
        set_generators(before)
