"""The stages of a trace, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from subclass_aot.engine.call import Arguments
from subclass_aot.engine.graph import Recorder
from subclass_aot.engine.outcome import OlderObjects
from subclass_aot.engine.sizes import DynamicSizes
from subclass_aot.engine.trace.backward import Backward, run_backward
from subclass_aot.engine.trace.forward import Forward, run_forward
from subclass_aot.engine.trace.inputs import TracedInputs, UserInputs, plan_inputs, trace_inputs
from subclass_aot.engine.trace.surroundings import recording


class Begun(NamedTuple):
    """A trace whose inputs are made."""

    recorder: Recorder
    user: UserInputs
    inputs: TracedInputs


@contextmanager
def begun(
    fn: Callable[..., Any], *args: Any, dynamic: DynamicSizes | None = None, inference: bool = False
) -> Iterator[Begun]:
    """Within the block, a recorder listens, and has placeholders for the tensors of a call."""
    recorder = Recorder()
    plan, user = plan_inputs(Arguments.of(fn, args, {}), dynamic)
    with recording(plan, recorder):
        yield Begun(recorder, user, trace_inputs(plan, user, recorder, inference))


def forward_of(
    fn: Callable[..., Any], *args: Any, dynamic: DynamicSizes | None = None, inference: bool = False
) -> Forward:
    """The first half of a trace."""
    with (
        begun(fn, *args, dynamic=dynamic, inference=inference) as (recorder, user, inputs),
        user.arguments.replaced(inputs.seen, stand_ins=True) as call,
        OlderObjects() as older,
    ):
        return run_forward(fn, call, inputs, user, recorder, older)


def backward_of(fn: Callable[..., Any], *args: Any) -> tuple[Recorder, Backward]:
    """What recorded the first half of a trace, and the second half."""
    with (
        begun(fn, *args) as (recorder, user, inputs),
        user.arguments.replaced(inputs.seen, stand_ins=True) as call,
        OlderObjects() as older,
    ):
        forward = run_forward(fn, call, inputs, user, recorder, older)
        return recorder, run_backward(inputs, forward, forward.tangents, recorder, older)
