"""The states of torch's generators of random numbers, on the CPU and on accelerators that are in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.base.generators_elsewhere import StatesElsewhere, put_back_elsewhere, states_elsewhere
from subclass_aot.base.put_back import PutBack


class States(NamedTuple):
    """States of generators.

    Attributes:
        cpu: That of the CPU's.
        cuda: Those of accelerators, if they are in use.
        elsewhere: Those of Python's generator and numpy's, if they count.
    """

    cpu: torch.Tensor
    cuda: list[torch.Tensor]
    elsewhere: StatesElsewhere | None = None

    def put_back(self) -> None:
        """Sets the generators to these states."""
        torch.default_generator.set_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
        put_back_elsewhere(self.elsewhere)


def generators(elsewhere: bool = False) -> States:
    """Returns the states as they are.

    Args:
        elsewhere: Whether those of Python and numpy are among them.
    """
    with _torch.dispatch.disable_current_modes():
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        return States(torch.default_generator.get_state(), cuda, states_elsewhere() if elsewhere else None)


@contextmanager
def drawing_from(states: States) -> Iterator[None]:
    """Runs the block with draws from other states, and restores the states of the generators after it."""
    with PutBack(generators(states.elsewhere is not None).put_back):
        states.put_back()
        yield
