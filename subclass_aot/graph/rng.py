"""Random numbers that are drawn again from the same state of the generator.

Activation checkpointing computes a part of the program again in backward, and sets the generator back before. The
numbers are the same, so they must be in the graph once. A trace draws nothing: here the generator is moved on by hand
with each draw, so that its state tells which draw it is. Afterwards it is as it was.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot._stack import user_line
from subclass_aot.errors import TraceError
from subclass_aot.graph.listener import GraphListener
from subclass_aot.meta import new_leaf
from subclass_aot.operators import effects_of

if TYPE_CHECKING:  # which has this listener
    from subclass_aot.graph.recorder import Recorder

_SEEDED = """The traced function sets the seed, or the state, of the generator of random numbers.
  Where:   {where}
  That happens while tracing, not in the graph, so later calls would draw other numbers than eager does.
  Instead: call torch.manual_seed before the compiled function, or pass the random numbers as an argument."""

_GENERATOR = """The traced function gives a generator to an operator, and a graph cannot hold one.
  Operator:   {operator}
  Your line:  {line}
  Instead: leave the generator out and call torch.manual_seed before the compiled function, or draw outside and pass the
  random numbers as an argument."""


class RandomNumbers(GraphListener):
    """Records a draw that repeats another one as a copy of it, within a block of `kept`."""

    def __init__(self) -> None:
        self._seed = torch.initial_seed()
        self._is_on = False
        self._before: torch.Tensor | None = None
        self._nodes: dict[bytes, fx.Node] = {}
        self._state = b""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within the block each draw moves the generator on; afterwards it is as it was."""
        self._is_on = True
        try:
            yield
        finally:
            if self._before is not None:
                torch.set_rng_state(self._before)
            self._before, self._is_on = None, False

    def wants(self, func: _torch.Operator) -> bool:
        return effects_of(func).random

    def on_operator(
        self, recorder: Recorder, func: _torch.Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> bool:
        if not self._is_on or not effects_of(func).draws(args, kwargs):
            return False
        if any(isinstance(a, torch.Generator) for a in (*args, *kwargs.values())):
            raise TraceError(_GENERATOR.format(operator=func, line=user_line()))
        with _torch.disable_current_modes():
            state = torch.get_rng_state()
            if self._before is None:
                self._before = state
            torch.empty(1, device="cpu").uniform_()
            self._state = state.numpy().tobytes()
        earlier = self._nodes.get(self._state)
        if earlier not in recorder.nodes:  # there is none, or another backward has drawn it
            return False
        _repeat(recorder, earlier, func, args, result)
        return True

    def on_recorded(
        self,
        recorder: Recorder,
        node: fx.Node,
        func: _torch.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        if self._is_on and effects_of(func).draws(args, kwargs):
            self._nodes[self._state] = node

    def refuse_seeds(self) -> None:
        """Refuses a function that has set the seed.

        Raises:
            TraceError: It has.
        """
        if torch.initial_seed() != self._seed:
            raise TraceError(_SEEDED.format(where="somewhere in the function, as by torch.manual_seed"))


def _repeat(recorder: Recorder, earlier: fx.Node, func: _torch.Operator, args: tuple[Any, ...], result: Any) -> None:
    """Gives the results of a draw the numbers of an earlier one: copies, since either may be written."""
    sources, leaves = [earlier], [result]
    if type(result) is tuple:
        items = {n.args[1]: n for n in earlier.users if n.target is operator.getitem}
        sources, leaves = [items[i] for i in range(len(items))], list(result)
    specs = [leaf.spec for leaf in leaves]
    if recorder.phase == "forward" or earlier.target is not func or [s.meta["spec"] for s in sources] != specs:
        raise TraceError(_SEEDED.format(where=user_line()))
    for source, leaf in zip(sources, leaves, strict=True):
        with recorder.graph.inserting_after(source):
            copy = recorder.create("call_function", torch.ops.aten.clone.default, (source,))
        copy.meta = dict(source.meta)
        if leaf is args[0]:
            numbers = new_leaf(leaf.spec)
            numbers.tag = copy
            recorder.on_operator(torch.ops.aten.copy_.default, (leaf, numbers), {}, leaf)
        else:
            leaf.tag = copy
