"""Generators of random numbers that a program has of its own: their states are tensors of the graph.

What a call reaches of them are objects that hold one tensor, their state (`Table("state")`): it comes in with the call,
each draw gives the next one, and the last one is put back when the call is over. See Note [States as values].

A generator is of C++, and no mode sees what a program does to it beside draws. So in a trace it really has a state
that no seed has, another one after each draw, and by that the state is found in the graph: also where the
program has set it back, or has given it to another generator. What it really had it gets back with its object.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.engine.graph import GraphListener, reasons, tape
from subclass_aot.meta import MetaTensor

_DRAWS = "draws from a generator of its own,"

_UNKNOWN = reasons.Reason(
    "whose state is none of a seed below 2**32, and none that a generator has had in this call",
    "call manual_seed with such a number; seed() takes a larger one by chance.",
)
_DEVICE = reasons.Reason(
    "which draws on {device}",
    "draw on the CPU, as in torch.rand(..., generator=g).to({device!r}), or outside the function.",
)
_ELSEWHERE = reasons.Reason(
    "which somebody holds whom the call does not reach: a class, another module of Python, a hook",
    "pass it as an argument, or keep it in an attribute of the module or in a variable of the function's.",
)
_IN_BACKWARD = reasons.Reason(
    "which has another state when gradients were computed",
    "draw before, and let backward read the numbers.",
)


_Reference = Callable[[], torch.Generator | None]
_MOST = 1 << 32
"""Larger seeds are taken for those of `Generator.seed()`, which takes 53 bits by chance; no mode sees that call."""


class OwnGenerators(GraphListener):
    """Knows the traced states of generators.

    Attributes:
        states: By the bytes that a generator has, what stands for them in the graph: of these generators, and of the
            default one behind a seed.
    """

    is_shared = True

    def __init__(self) -> None:
        self.states: dict[bytes, Any] = {}
        self._begun = 0
        self._reached: dict[int, _Reference] = {}
        self._read: set[int] = set()  # by an outcome, which makes another one at each call
        self._unknown: set[int] = set()
        self._made: dict[int, tuple[_Reference, str]] = {}  # the function made them; with the place
        self._drawn: set[int] = set()
        self._left: list[tuple[_Reference, bytes]] = []

    def collections(self) -> list[Collection[Any]]:
        return [self.states.values()]

    def begin(self) -> None:
        """Says that generators have their own states, when the function or its backward is traced."""
        self._left = []

    def state_of(self, recorder: tape.Tape, generator: torch.Generator) -> Any:
        """Returns the traced state of a generator that is drawn from.

        Raises:
            TraceError: Nothing does.
        """
        address = _torch.generator.address_of_generator(generator)
        if generator.device.type != "cpu":
            raise _DEVICE.error(_DRAWS, device=str(generator.device))
        if address not in self._reached and address not in self._made:
            raise _ELSEWHERE.error(_DRAWS)
        if recorder.phase == "backward" and not self._left and address in self._reached:
            raise _IN_BACKWARD.error(_DRAWS)  # that backward is not recorded with the call, but later
        self._drawn.add(address)
        state = self._known(recorder, generator)
        if state is None:
            raise _UNKNOWN.error(_DRAWS)
        return state

    def give(self, generator: torch.Generator, state: Any) -> None:
        """Registers a traced tensor as the state of a generator from here on."""
        self._begun += 1
        self.states[_torch.generator.mark(generator, generator.get_state(), self._begun)] = state

    def end_forward(self) -> None:
        """Refuses draws from a generator that is still there, and that later calls would not find.

        Raises:
            TraceError: There is one, or the state of one is none that later calls could make.
        """
        if self._unknown:
            raise _UNKNOWN.error(_DRAWS, "when the function is over")
        self._refuse_kept()
        alive = [(reference, reference()) for reference in self._reached.values()]
        self._left = [
            (reference, _torch.generator.state_bytes(g.get_state())) for reference, g in alive if g is not None
        ]

    def end_backward(self) -> None:
        """Refuses what leaves a generator in another state while gradients are computed.

        Raises:
            TraceError: It does.
        """
        self._refuse_kept()
        for reference, before in self._left:
            generator = reference()
            if generator is not None and _torch.generator.state_bytes(generator.get_state()) != before:
                raise _IN_BACKWARD.error(_DRAWS, "in a hook, a checkpoint, or the backward of an autograd.Function")

    def _refuse_kept(self) -> None:
        """Refuses draws from a generator that the function made and that is still there, though in no result."""
        if not self._made:
            return

        def kept() -> list[str]:
            return [where for address, (made, where) in self._made.items()
                    if made() is not None and address in self._drawn and address not in self._read]  # fmt: skip

        if kept():
            gc.collect()  # it may be garbage
        for where in kept():
            raise _ELSEWHERE.error(_DRAWS, where)

    def note_made(self, generator: torch.Generator) -> None:
        """Notes that the function has made a generator."""
        address = _torch.generator.address_of_generator(generator)
        self._made[address] = _torch.generator.reference_to(generator), user_line()
        self._drawn.discard(address)  # that was another one, which is gone

    def _known(self, recorder: tape.Tape, generator: torch.Generator) -> Any:
        """Returns the traced state of a generator; that of a seed is a constant. None if there is none."""
        state = generator.get_state()
        now = _torch.generator.state_bytes(state)
        known = self.states.get(now)
        if known is not None and known.meta_tag in recorder.nodes:
            return known
        seed = generator.initial_seed()
        of_default = recorder.listeners.random_numbers.of_default(recorder, now)
        if of_default is not None:
            self.give(generator, of_default)
            return of_default
        by_chance = seed >= _MOST and seed != _torch.generator.first_seed()
        if by_chance or _torch.generator.state_bytes(_torch.generator.state_of_seed(seed)) != now:
            return None
        with _torch.dispatch.disable_current_modes():
            known = self.states[now] = recorder.lift(state)
        return known

    def read(self, recorder: tape.Tape, generator: torch.Generator) -> torch.Tensor:
        """Returns the state of a generator while the function runs; the traced one, if there is one."""
        self._read.add(_torch.generator.address_of_generator(generator))
        state = self._known(recorder, generator)
        if state is None:  # it may yet get a traced one; if not, that is refused when the function is over
            self._unknown.add(_torch.generator.address_of_generator(generator))
            return generator.get_state()
        return state  # type: ignore[no-any-return]

    def put(self, generator: torch.Generator, state: torch.Tensor) -> None:
        """Sets the state of a generator; what has a traced one is reached by the call."""
        if isinstance(state, MetaTensor):
            self._unknown.discard(_torch.generator.address_of_generator(generator))
            self._reached[_torch.generator.address_of_generator(generator)] = _torch.generator.reference_to(generator)
            self.give(generator, state)
        else:
            generator.set_state(state)
