"""Random numbers in a trace: the state of the generator says from which draw another one goes on.

A trace draws nothing. The generator is moved on by hand with each draw, so that its state says which draw it is, and
whether the program has set it in between. Afterwards it is as it was. In the trace it begins with a state that no seed
has, so that a program is seen to set the seed that is set already, too.

That much is done in every trace: the states are noted, the generator gets its mark, and both are compared at the end.
All else begins with the first operator that draws, or with the first call that asks `state_calls.py`.

What is drawn as it comes belongs to the generator of the call: the graph draws from it, in this order. Where the
program goes back to a state that it had, as activation checkpointing does, the same numbers are in the graph once: what
repeats a draw is a copy of it. Where it sets a seed, see Note [States as values].
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.generators_elsewhere import drawn_elsewhere, put_back_elsewhere
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine.graph.drawn import GENERATOR_STATE, drawn
from subclass_aot.engine.graph.draws_elsewhere import DRAW_ELSEWHERE, stand_ins_elsewhere
from subclass_aot.engine.graph.generators import States, generators
from subclass_aot.engine.graph.listeners.listener import GraphListener
from subclass_aot.engine.graph.listeners.state_calls import SETS, StateCalls
from subclass_aot.engine.graph.reasons import Reason
from subclass_aot.engine.graph.tape import Tape
from subclass_aot.meta import MetaTensor, Spec, new_leaf

_UNKNOWN = Reason(
    "it is none that the function has had, nor one of a seed",
    "call torch.manual_seed with a number, or set back what torch.get_rng_state() gave in the function.",
)
_OTHER_DRAW = Reason(
    "goes on from a state that it had before it read a value, or in another backward",
    "set a seed there, or draw the same numbers once and use them twice.",
)
_IN_BACKWARD = Reason(
    "leaves another one when gradients are computed",
    "put the state back, as in `with torch.random.fork_rng():`.",
)
_DEVICE = Reason(
    "draws on {device}",
    "draw on the CPU, as in torch.rand(...).to({device!r}), or outside, and pass the random numbers.",
)


class RandomNumbers(GraphListener):
    """Records where draws go on, within a block of `kept`.

    Attributes:
        start: The states of the generators when the block was entered: what the call draws from.
        in_forward: Whether the function runs: what the call reaches has its stand-ins, and the program sets states.
        line_elsewhere: Where the program draws by Python or numpy what no graph can draw.
    """

    is_of_every_program = True
    effects = ("random",)

    def __init__(self) -> None:
        self.start = States(torch.empty(0), [])
        self.in_forward = False
        self.line_elsewhere = ""
        self._is_on = False
        self._begun = 0
        self._at = self._live = self._start = b""  # expected; where what is drawn as it comes goes on; where it began
        self._nodes: dict[bytes, fx.Node] = {}  # what was drawn as it came, by the state before

    @contextmanager
    def kept(self, recorder: Tape) -> Iterator[None]:
        """Runs the block, in which each draw moves the generator on, and restores the generators after it.

        Args:
            recorder: What has this listener.
        """
        self.start = generators(elsewhere=True)
        asked = _torch.generator.of_thread.asked
        stand_ins = [*_torch.generator.STAND_INS, *stand_ins_elsewhere()]
        replaced = [(there, {name: there[name] for name in new}) for there, new in stand_ins]
        with PutBack(partial(self._end, list(asked), replaced)):
            self._is_on = True
            self._go_on_elsewhere()
            self._start = self._live
            if "own_generators" in recorder.listeners:
                recorder.listeners.own_generators.begin()
            asked.append(StateCalls(recorder))
            for there, new in stand_ins:
                there.update(new)
            yield

    def _end(
        self, asked: list[_torch.generator.OfTrace], replaced: list[tuple[dict[str, Any], dict[str, Any]]]
    ) -> None:
        """Puts back what `kept` has replaced."""
        for there, own in replaced:
            there.update(own)
        _torch.generator.of_thread.asked[:] = asked
        torch.default_generator.set_state(self.start.cpu)
        if drawn_elsewhere(self.start.elsewhere):
            put_back_elsewhere(self.start.elsewhere)
        self._is_on = self.in_forward = False

    def on_operator(
        self,
        recorder: Tape,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> bool:
        if not self._is_drawn(func, args, kwargs):
            return False
        generator = _generator_in(args, kwargs)
        if generator is not None:
            args = tuple([None if a is generator else a for a in args])
            kwargs = {name: None if a is generator else a for name, a in kwargs.items()}
            if _torch.generator.is_default_generator(generator):
                recorder.on_operator(func, args, kwargs, result)
            else:
                own = recorder.listeners.own_generators
                state = own.state_of(recorder, generator)
                own.give(generator, _draw_from(recorder, state, func, args, kwargs, result))
            return True
        self._at = self._found(recorder)
        state = _states(recorder).get(self._at)
        if state is not None:
            self._go_on(recorder, _draw_from(recorder, state, func, args, kwargs, result))
            return True
        if self._at == self._live:
            return False
        if _repeat(recorder, self._nodes[self._at], func, args, kwargs, result):
            self._at = _advanced()
        else:
            state = self._value_at(recorder, self._at)
            self._go_on(recorder, _draw_from(recorder, state, func, args, kwargs, result))
        return True

    def draws_from_state(self, recorder: Tape, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Returns whether what is drawn now comes from a state in the graph, and so is what eager mode draws."""
        if not self._is_on:
            return False
        generator = _generator_in(args, kwargs)
        own = generator is not None and not _torch.generator.is_default_generator(generator)
        return own or self._found(recorder) in _states(recorder)

    def on_recorded(
        self,
        recorder: Tape,
        node: fx.Node,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        if self._is_drawn(func, args, kwargs):
            self._nodes[self._at] = node
            self._at = self._live = _advanced()

    def end_forward(self, recorder: Tape) -> tuple[Any, bool]:
        """Says what the function does to the generator beside draws that come one after the other.

        Returns:
            What stands for the state that it leaves, if that does not follow from such draws; and whether it draws, and
            puts back the state that there was before.
        """
        has_states = "own_generators" in recorder.listeners
        if has_states:
            recorder.listeners.own_generators.end_forward()
        state, keeps = None, False
        now = _torch.generator.state_bytes(torch.default_generator.get_state())
        if now != self._at or self._nodes or has_states:
            at = self._found(recorder)
            state, keeps = _states(recorder).get(at), at == self._start != self._live
            if state is None and not keeps and at != self._live:
                state = self._value_at(recorder, at)
        self.in_forward = False
        self._go_on_elsewhere()
        return state, keeps

    def end_backward(self, recorder: Tape) -> None:
        """Refuses what leaves the generator in another state while gradients are computed.

        Raises:
            TraceError: It does.
        """
        if not self._is_on:
            return
        if "own_generators" in recorder.listeners:
            recorder.listeners.own_generators.end_backward()
        if self._found(recorder) != self._live:
            raise _IN_BACKWARD.error(SETS, "in a hook, or in the backward of an autograd.Function")

    def with_state(self, recorder: Tape, result: Any) -> Any:
        """Returns a result as it is; of a state that a generator has in this trace, what stands for it in the graph: it
        means nothing elsewhere.
        """
        if type(result) is not torch.Tensor or result.dtype is not torch.uint8 or result.device.type != "cpu":
            return result
        with _torch.dispatch.disable_current_modes():
            if result.numel() != len(self._live):
                return result
            at = _torch.generator.state_bytes(result.contiguous())
        known = _states(recorder).get(at)
        if known is not None:
            return known.clone()
        of_default = self.of_default(recorder, at, is_last=True)
        return result if of_default is None else of_default

    def go_on_from(self, recorder: Tape, state: torch.Tensor) -> None:
        """Has draws go on from a traced state. The generator cannot have one, so another takes its place."""
        self._go_on_elsewhere(live=self._live)
        self._note(recorder, self._at, state)

    def _go_on_elsewhere(self, live: bytes | None = None) -> None:
        """Gives the generator a state that no seed has, and no draw before.

        Args:
            live: Where what is drawn as it comes goes on; there, if left out.
        """
        self._begun += 1
        self._at = _torch.generator.mark(torch.default_generator, self.start.cpu, self._begun)
        self._live = self._at if live is None else live

    def _is_drawn(self, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Returns whether a call draws from a generator of torch's."""
        return self._is_on and func is not DRAW_ELSEWHERE and effects_of(func).draws(args, kwargs)

    def _found(self, recorder: Tape) -> bytes:
        """Returns the state of the generator: the expected one, or one that the program has set.

        Raises:
            TraceError: It is nowhere that is known.
        """
        state, states = torch.default_generator.get_state(), _states(recorder)
        now = _torch.generator.state_bytes(state)
        known = states.get(now)
        if (
            now in (self._at, self._live)
            or now in self._nodes
            or known is not None
            and known.meta_tag in recorder.nodes
        ):
            return now
        with _torch.dispatch.disable_current_modes():
            if _torch.generator.state_bytes(_torch.generator.state_of_seed(torch.initial_seed())) == now:
                self._note(recorder, now, recorder.lift(state))
                return now
        if _torch.generator.is_later_state(now, self._at):  # another thread has drawn
            if self._at in states:
                self._note(recorder, now, states[self._at])
            elif self._at == self._live:
                self._live = now
            return now
        raise _UNKNOWN.error(SETS)

    def of_default(self, recorder: Tape, at: bytes, is_last: bool = False) -> MetaTensor | None:
        """Returns the traced tensor for a state of the default generator; None if it is no state of it.

        Args:
            recorder: What records.
            at: The state, as bytes.
            is_last: Whether the program is over, so that nothing that reads it gives a value.
        """
        if at in self._nodes:
            return self._value_at(recorder, at, is_last)
        if at != self._live:
            return None
        node = recorder.create("call_function", GENERATOR_STATE, (), "generator_state")
        return recorder.new_leaf(Spec.of(self.start.cpu), node)

    def _value_at(self, recorder: Tape, at: bytes, is_last: bool = False) -> MetaTensor:
        """Returns the traced tensor for the state that the generator had before one of several draws in a row.

        Args:
            recorder: What records.
            at: The state, as bytes.
            is_last: Whether the program is over, so that nothing that reads it gives a value.

        Raises:
            TraceError: The draw is in another backward, or the graph has run up to it.
        """
        earlier, looks = self._nodes[at], recorder.listeners.looks
        if earlier not in recorder.nodes or looks is not None and looks.has_answered and not is_last:
            raise _OTHER_DRAW.error(SETS)
        with recorder.graph.inserting_before(earlier):
            node = recorder.create("call_function", GENERATOR_STATE, (), "generator_state")
        leaf = recorder.new_leaf(Spec.of(self.start.cpu), node)
        node.meta["partitioner_tag"] = earlier.meta["partitioner_tag"]
        return leaf

    def _go_on(self, recorder: Tape, state: Any) -> None:
        """Advances the generator by a draw from a state, to a state whose traced tensor is `state`."""
        self._at = _advanced()
        self._note(recorder, self._at, state)

    @staticmethod
    def _note(recorder: Tape, at: bytes, state: object) -> None:
        """Notes what stands for a state in the graph."""
        recorder.listeners.own_generators.states[at] = state


def _states(recorder: Tape) -> Mapping[bytes, Any]:
    """Returns what stands for states in the graph. Where nobody has asked for one, there are none."""
    found: Mapping[bytes, Any] = {}
    if "own_generators" in recorder.listeners:
        found = recorder.listeners.own_generators.states
    return found


def _draw_from(
    recorder: Tape, state: Any, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: Any, result: Any
) -> Any:
    """Records a draw from a state; returns the traced tensor for the next state."""
    written = [argument_at(place, args, kwargs) for place in effects_of(func).writes]
    written = [leaf for leaf in written if leaf is not None]
    made = [x for x in (result if isinstance(result, tuple) else (result,)) if all(x is not w for w in written)]
    copies, after = [new_leaf(leaf.meta_spec) for leaf in written], new_leaf(state.meta_spec)
    for leaf in (*made, *written):
        if leaf.meta_spec.device.type != "cpu":
            raise _DEVICE.error(SETS, device=str(leaf.meta_spec.device))
    recorder.on_operator(drawn(func), (state, *args), kwargs, (*made, *copies, after))
    for leaf, copy in zip(written, copies, strict=True):
        recorder.on_operator(torch.ops.aten.copy_.default, (leaf, copy), {}, leaf)
    return after


def _generator_in(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Generator | None:
    """Returns the generator that an operator is given."""
    return next((a for a in (*args, *kwargs.values()) if isinstance(a, torch.Generator)), None)


def _advanced() -> bytes:
    """Moves the generator on by a draw, and gives the state behind it."""
    with _torch.dispatch.disable_current_modes():
        torch.empty(1, device="cpu", dtype=torch.float32).uniform_()
        return _torch.generator.state_bytes(torch.default_generator.get_state())


def _repeat(
    recorder: Tape,
    earlier: fx.Node,
    func: _torch.operators.Operator,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any,
) -> bool:
    """Gives the results of a draw the numbers of an earlier one: copies, since either may be written.

    Returns:
        Whether the earlier one draws the same.
    """
    if earlier not in recorder.nodes:  # another backward has drawn it
        return False
    sources, leaves = [earlier], [result]
    if type(result) is tuple:
        items = {n.args[1]: n for n in earlier.users if n.target is operator.getitem}
        sources, leaves = [items[i] for i in range(len(items))], list(result)
    specs = [leaf.meta_spec for leaf in leaves]
    if earlier.target is not func or [s.meta["spec"] for s in sources] != specs:
        return False
    if _compared(recorder, func, args, kwargs) != _compared(recorder, func, earlier.args, earlier.kwargs):
        return False
    for source, leaf in zip(sources, leaves, strict=True):
        with recorder.graph.inserting_after(source):
            copy = recorder.create("call_function", torch.ops.aten.clone.default, (source,))
        copy.meta = dict(source.meta)
        if leaf is args[0]:
            numbers = new_leaf(leaf.meta_spec)
            numbers.meta_tag = copy
            recorder.on_operator(torch.ops.aten.copy_.default, (leaf, numbers), {}, leaf)
        else:
            leaf.meta_tag = copy
    return True


def _compared(recorder: Tape, func: _torch.operators.Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Returns those arguments of a draw that must be the same for the same numbers: all but what it writes.

    A checkpoint computes tensors again, and they are others in the graph, with the same values.
    """
    given = effects_of(func).bind(args, kwargs)
    for _, name in effects_of(func).writes:
        given.pop(name, None)
    nodes = {name: recorder.node_of(value) for name, value in given.items()}
    again = recorder.phase == "backward"
    return {n: None if again and isinstance(x, fx.Node) and "spec" in x.meta else x for n, x in nodes.items()}
