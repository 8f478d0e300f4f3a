"""Random numbers in a trace: the state of the generator says from which draw another one goes on.

A trace draws nothing. The generator is moved on by hand with each draw, so that its state says which draw it is, and
whether the program has set it in between. Afterwards it is as it was. In the trace it begins with a state that no seed
has, so that a program is seen to set the seed that is set already, too.

What is drawn as it comes belongs to the generator of the call: the graph draws from it, in this order. Where the
program goes back to a state that it had, as activation checkpointing does, the same numbers are in the graph once: what
repeats a draw is a copy of it. Where it sets a seed, see Note [States as values].
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot.generators_elsewhere import put_back_elsewhere
from subclass_aot.graph.drawn import GENERATOR_STATE, drawn
from subclass_aot.graph.draws_elsewhere import DRAW_ELSEWHERE
from subclass_aot.graph.generators import Reason, States, generators
from subclass_aot.graph.listeners.listener import GraphListener
from subclass_aot.graph.listeners.own_generators import OwnGenerators
from subclass_aot.meta import MetaTensor, Spec, new_leaf
from subclass_aot.operators import argument_at, effects_of
from subclass_aot.put_back import PutBack

if TYPE_CHECKING:  # which has this listener
    from subclass_aot.graph.recorder import Recorder

_SETS = "sets the state of the generator of random numbers, and"

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
_SEED_BY_CHANCE = Reason(
    "takes a seed by chance (torch.seed())",
    "call it outside the compiled function.",
)


class RandomNumbers(GraphListener):
    """Records where draws go on, within a block of `kept`.

    Attributes:
        start: The states of the generators when the block was entered: what the call draws from.
        own: The generators that the program has of its own.
        line_elsewhere: Where the program draws by Python or numpy what no graph can draw.
    """

    # More than ten attributes: three places among the draws, what was drawn and set by these, and others' generators.

    is_of_every_program = True
    effects = ("random",)

    def __init__(self) -> None:
        self.start = States(torch.empty(0), [])
        self.line_elsewhere = ""
        self._is_on = False
        self._before = torch.empty(0)
        self._begun = 0
        self._at = self._live = self._start = b""  # expected; where what is drawn as it comes goes on; where it began
        self._nodes: dict[bytes, fx.Node] = {}  # what was drawn as it came, by the state before
        self._states: dict[bytes, Any] = {}  # what stands for a state behind a seed, or of a generator of its own
        self.own = OwnGenerators(self._states, self._of_default)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Runs the block, in which each draw moves the generator on, and restores the generator after it."""
        self.start = generators(elsewhere=True)
        self._before = before = self.start.cpu
        self._is_on = True
        self._go_on_elsewhere()
        self._start = self._live
        calls = _torch.generator.calls_of_generator(
            seed=lambda function: _refuse_chance, get_rng_state=self._getting, set_rng_state=self._setting
        )
        with (
            PutBack(partial(setattr, self, "_is_on", False)),
            PutBack(partial(_set, before)),
            PutBack(partial(put_back_elsewhere, self.start.elsewhere)),
            calls,
            self.own.watched(),
        ):
            yield

    def wants(self, func: _torch.operators.Operator) -> bool:
        return super().wants(func) and func is not DRAW_ELSEWHERE

    def collections(self) -> list[Collection[Any]]:
        return [self._states.values()]

    def on_operator(
        self,
        recorder: Recorder,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> bool:
        if not self._is_on or not effects_of(func).draws(args, kwargs):
            return False
        generator = _generator_in(args, kwargs)
        if generator is not None:
            args = tuple([None if a is generator else a for a in args])
            kwargs = {name: None if a is generator else a for name, a in kwargs.items()}
            if _torch.generator.is_default_generator(generator):
                recorder.on_operator(func, args, kwargs, result)
            else:
                state = self.own.state_of(recorder, generator)
                self.own.give(generator, _draw_from(recorder, state, func, args, kwargs, result))
            return True
        self._at = self._found(recorder)
        state = self._states.get(self._at)
        if state is not None:
            self._go_on(_draw_from(recorder, state, func, args, kwargs, result))
            return True
        if self._at == self._live:
            return False
        if _repeat(recorder, self._nodes[self._at], func, args, kwargs, result):
            self._at = _advanced()
        else:
            self._go_on(_draw_from(recorder, self._value_at(recorder, self._at), func, args, kwargs, result))
        return True

    def draws_from_state(self, recorder: Recorder, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Returns whether what is drawn now comes from a state in the graph, and so is what eager mode draws."""
        if not self._is_on:
            return False
        generator = _generator_in(args, kwargs)
        own = generator is not None and not _torch.generator.is_default_generator(generator)
        return own or self._found(recorder) in self._states

    def on_recorded(
        self,
        recorder: Recorder,
        node: fx.Node,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        if self._is_on and effects_of(func).draws(args, kwargs):
            self._nodes[self._at] = node
            self._at = self._live = _advanced()

    def end_forward(self, recorder: Recorder) -> tuple[Any, bool]:
        """Says what the function does to the generator beside draws that come one after the other.

        Returns:
            What stands for the state that it leaves, if that does not follow from such draws; and whether it draws, and
            puts back the state that there was before.
        """
        self.own.end_forward()
        at = self._found(recorder)
        state, keeps = self._states.get(at), at == self._start != self._live
        if state is None and not keeps and at != self._live:
            state = self._value_at(recorder, at)
        self._go_on_elsewhere()
        return state, keeps

    def end_backward(self, recorder: Recorder) -> None:
        """Refuses what leaves the generator in another state while gradients are computed.

        Raises:
            TraceError: It does.
        """
        if not self._is_on:
            return
        self.own.end_backward()
        if self._found(recorder) != self._live:
            raise _IN_BACKWARD.error(_SETS, "in a hook, or in the backward of an autograd.Function")

    def with_state(self, recorder: Recorder, result: Any) -> Any:
        """Returns a result as it is; of a state that a generator has in this trace, what stands for it in the graph: it
        means nothing elsewhere.
        """
        if type(result) is not torch.Tensor or result.dtype is not torch.uint8 or result.device.type != "cpu":
            return result
        with _torch.dispatch.disable_current_modes():
            if result.numel() != len(self._live):
                return result
            at = _torch.generator.state_bytes(result.contiguous())
        known = self._states.get(at)
        if known is not None:
            return known.clone()
        of_default = self._of_default(recorder, at, is_last=True)
        return result if of_default is None else of_default

    def _getting(self, get: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """Makes what gives the state: behind a seed a traced tensor, since it is a value in the graph."""

        def get_rng_state() -> torch.Tensor:
            known = self._states.get(_torch.generator.state_bytes(_state()))
            return get() if known is None else known.clone()

        return get_rng_state

    def _setting(self, put: Callable[[torch.Tensor], None]) -> Callable[[torch.Tensor], None]:
        """Returns a function that sets the state.

        The generator cannot have a traced one, so another takes its place.
        """

        def set_rng_state(new_state: torch.Tensor) -> None:
            if not isinstance(new_state, MetaTensor) or new_state.shape != self._before.shape:
                return put(new_state)
            self._go_on_elsewhere(live=self._live)
            self._states[self._at] = new_state.detach().clone()  # as it is now: it may be written

        return set_rng_state

    def _go_on_elsewhere(self, live: bytes | None = None) -> None:
        """Gives the generator a state that no seed has, and no draw before.

        Args:
            live: Where what is drawn as it comes goes on; there, if left out.
        """
        self._begun += 1
        _set(_torch.generator.state_of_no_seed(self._before, self._begun))
        self._at = _torch.generator.state_bytes(_state())
        self._live = self._at if live is None else live

    def _found(self, recorder: Recorder) -> bytes:
        """Returns the state of the generator: the expected one, or one that the program has set.

        Raises:
            TraceError: It is nowhere that is known.
        """
        state = _state()
        now = _torch.generator.state_bytes(state)
        known = self._states.get(now)
        if (
            now in (self._at, self._live)
            or now in self._nodes
            or known is not None
            and known.meta_tag in recorder.nodes
        ):
            return now
        with _torch.dispatch.disable_current_modes():
            if _torch.generator.state_bytes(_torch.generator.state_of_seed(torch.initial_seed())) == now:
                self._states[now] = recorder.lift(state)
                return now
        if _torch.generator.is_later_state(now, self._at):  # another thread has drawn
            if self._at in self._states:
                self._states[now] = self._states[self._at]
            elif self._at == self._live:
                self._live = now
            return now
        raise _UNKNOWN.error(_SETS)

    def _of_default(self, recorder: Recorder, at: bytes, is_last: bool = False) -> MetaTensor | None:
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
        return recorder.new_leaf(Spec.of(self._before), node)

    def _value_at(self, recorder: Recorder, at: bytes, is_last: bool = False) -> MetaTensor:
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
            raise _OTHER_DRAW.error(_SETS)
        with recorder.graph.inserting_before(earlier):
            node = recorder.create("call_function", GENERATOR_STATE, (), "generator_state")
        leaf = recorder.new_leaf(Spec.of(self._before), node)
        node.meta["partitioner_tag"] = earlier.meta["partitioner_tag"]
        return leaf

    def _go_on(self, state: Any) -> None:
        """Advances the generator by a draw from a state, to a state whose traced tensor is `state`."""
        self._at = _advanced()
        self._states[self._at] = state


def _draw_from(
    recorder: Recorder, state: Any, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: Any, result: Any
) -> Any:
    """Records a draw from a state; returns the traced tensor for the next state."""
    written = [argument_at(place, args, kwargs) for place in effects_of(func).writes]
    written = [leaf for leaf in written if leaf is not None]
    made = [x for x in (result if isinstance(result, tuple) else (result,)) if all(x is not w for w in written)]
    copies, after = [new_leaf(leaf.meta_spec) for leaf in written], new_leaf(state.meta_spec)
    for leaf in (*made, *written):
        if leaf.meta_spec.device.type != "cpu":
            raise _DEVICE.error(_SETS, device=str(leaf.meta_spec.device))
    recorder.on_operator(drawn(func), (state, *args), kwargs, (*made, *copies, after))
    for leaf, copy in zip(written, copies, strict=True):
        recorder.on_operator(torch.ops.aten.copy_.default, (leaf, copy), {}, leaf)
    return after


def _generator_in(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Generator | None:
    """Returns the generator that an operator is given."""
    return next((a for a in (*args, *kwargs.values()) if isinstance(a, torch.Generator)), None)


def _state() -> torch.Tensor:
    return torch.default_generator.get_state()  # which no mode sees


def _set(state: torch.Tensor) -> None:
    torch.default_generator.set_state(state)


def _advanced() -> bytes:
    """Moves the generator on by a draw, and gives the state behind it."""
    with _torch.dispatch.disable_current_modes():
        torch.empty(1, device="cpu", dtype=torch.float32).uniform_()
        return _torch.generator.state_bytes(torch.default_generator.get_state())


def _refuse_chance() -> NoReturn:
    raise _SEED_BY_CHANCE.error(_SETS)


def _repeat(
    recorder: Recorder,
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


def _compared(
    recorder: Recorder, func: _torch.operators.Operator, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Returns those arguments of a draw that must be the same for the same numbers: all but what it writes.

    A checkpoint computes tensors again, and they are others in the graph, with the same values.
    """
    given = effects_of(func).bind(args, kwargs)
    for _, name in effects_of(func).writes:
        given.pop(name, None)
    nodes = {name: recorder.node_of(value) for name, value in given.items()}
    again = recorder.phase == "backward"
    return {n: None if again and isinstance(x, fx.Node) and "spec" in x.meta else x for n, x in nodes.items()}
