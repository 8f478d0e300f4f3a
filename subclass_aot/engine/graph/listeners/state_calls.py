"""Answers calls about generators of random numbers that a program makes while it is traced, and that no mode sees.

Torch's generators are of C++, and torch has nothing to do with those of Python and numpy. So functions of this library
stand in the places of others during a trace, and call what is here. See `_torch/generator.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.engine.graph.reasons import Reason
from subclass_aot.engine.graph.tape import Tape
from subclass_aot.meta import MetaTensor

SETS = "sets the state of the generator of random numbers, and"
"""What a function does that is refused."""

_SEED_BY_CHANCE = Reason(
    "takes a seed by chance (torch.seed())",
    "call it outside the compiled function.",
)


@dataclass(frozen=True, slots=True, eq=False)
class StateCalls:
    """Answers such calls for one trace.

    Attributes:
        recorder: What records it.
    """

    recorder: Tape

    def is_recording(self) -> bool:
        """Returns whether the program runs that is traced, and may read values."""
        if self.recorder.listeners.looks is None or self.recorder.phase != "forward":
            return False
        return any(mode is self.recorder for mode in _torch.dispatch.dispatch_modes())

    def note_line(self) -> None:
        """Notes the line at which the program draws by Python or numpy what no graph can draw."""
        self.recorder.listeners.random_numbers.line_elsewhere = user_line()

    def refuse_chance(self) -> NoReturn:
        """Refuses a seed by chance.

        Raises:
            TraceError: Always.
        """
        raise _SEED_BY_CHANCE.error(SETS)

    def get_state(self) -> torch.Tensor:
        """Returns the state of the default generator. Behind a seed it is a traced tensor: a value in the graph."""
        state = torch.default_generator.get_state()
        known = self.recorder.listeners.own_generators.states.get(_torch.generator.state_bytes(state))
        return state if known is None else known.clone()

    def set_state(self, state: torch.Tensor) -> None:
        """Sets the state of the default generator."""
        numbers = self.recorder.listeners.random_numbers
        if isinstance(state, MetaTensor) and state.shape == numbers.start.cpu.shape:
            numbers.go_on_from(self.recorder, state.detach().clone())  # as it is now: it may be written
        else:
            torch.default_generator.set_state(state)

    def state_of(self, generator: torch.Generator) -> torch.Tensor:
        """Returns the state of a generator of the program's; while the function runs, the traced one."""
        listeners = self.recorder.listeners
        if not listeners.random_numbers.in_forward:
            return generator.get_state()
        state: torch.Tensor = listeners.own_generators.read(self.recorder, generator)
        return state

    def set_state_of(self, generator: torch.Generator, state: torch.Tensor) -> None:
        """Sets the state of a generator of the program's."""
        self.recorder.listeners.own_generators.put(generator, state)

    def note_made(self, generator: torch.Generator) -> None:
        """Notes that the program has made a generator."""
        self.recorder.listeners.own_generators.note_made(generator)
