"""Random numbers that are drawn again from the same state of the generator.

Activation checkpointing computes a part of the program again in backward, and sets the generator back before. The
numbers are the same, so they must be in the graph once. A trace draws nothing: here the generator is moved on by hand
with each draw, so that its state tells which draw it is. Afterwards it is as it was.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot._stack import user_line
from subclass_aot.errors import TraceError

SEEDED = """The traced function sets the seed, or the state, of the generator of random numbers.
  Where:   {where}
  That happens while tracing, not in the graph, so later calls would draw other numbers than eager does.
  Instead: call torch.manual_seed before the compiled function, or pass the random numbers as an argument."""

_GENERATOR = """The traced function gives a generator to an operator, and a graph cannot hold one.
  Operator:   {operator}
  Your line:  {line}
  Instead: leave the generator out and call torch.manual_seed before the compiled function, or draw outside and pass the
  random numbers as an argument."""


class Draws:
    """The draws of one trace, in a `with` block around it."""

    def __init__(self) -> None:
        self._seed = torch.initial_seed()
        self._before: torch.Tensor | None = None
        self._nodes: dict[bytes, fx.Node] = {}
        self._state = b""

    def __enter__(self) -> Draws:
        self._before = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            torch.set_rng_state(self._before)

    def next(self, func: _torch.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node | None:
        """Hears of a draw before it is recorded.

        Returns:
            The node of the draw that this one repeats, or None if it repeats none.

        Raises:
            TraceError: The operator is given a generator.
        """
        if any(isinstance(a, torch.Generator) for a in (*args, *kwargs.values())):
            raise TraceError(_GENERATOR.format(operator=func, line=user_line()))
        with _torch.disable_current_modes():
            state = torch.get_rng_state()
            if self._before is None:
                self._before = state
            torch.empty(1, device="cpu").uniform_()
            self._state = state.numpy().tobytes()
        return self._nodes.get(self._state)

    def note(self, node: fx.Node) -> None:
        """The node of the draw that `next` was asked for last."""
        self._nodes[self._state] = node

    def refuse_seeds(self) -> None:
        """Refuses a function that has set the seed.

        Raises:
            TraceError: It has.
        """
        if torch.initial_seed() != self._seed:
            raise TraceError(SEEDED.format(where="somewhere in the function, as by torch.manual_seed"))
