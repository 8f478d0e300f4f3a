"""The generated code of one signature: from the leaves of a call to its results.

Three functions are generated, each straight-line. `forward` runs the forward graph and wraps; `backward` unwraps
tangents, runs the backward graph and wraps gradients; `call` is what a call runs once the guard has let it through.
With gradients, `forward` and `backward` are the two halves of one `autograd.Function`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.backends import BoxedFunction
from subclass_aot.runtime.backward import write_backward
from subclass_aot.runtime.call import Call, write_call
from subclass_aot.runtime.calling_convention import Convention
from subclass_aot.runtime.double_backward import DoubleBackward
from subclass_aot.runtime.forward import write_forward
from subclass_aot.runtime.graphs import Graphs
from subclass_aot.runtime.once import once_differentiable
from subclass_aot.runtime.unexpected_tangents import UnexpectedTangents
from subclass_aot.trace import JointSignature


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """What runs for one signature.

    Attributes:
        call: `call(values, leaves)`, with the tensors of the call and their flat slots, gives the flattened results.
        sources: The generated text, by what it does.
    """

    call: Call
    sources: dict[str, str]


def make_entry(
    signature: JointSignature,
    graphs: Graphs,
    forward: BoxedFunction,
    backward: BoxedFunction | None,
    others: UnexpectedTangents | None,
    twice: DoubleBackward | None = None,
) -> Entry:
    """Generates the code that runs compiled graphs for one signature.

    Args:
        signature: The signature.
        graphs: Its graphs.
        forward: The forward graph, compiled.
        backward: The backward graph, compiled.
        others: What to do with gradients of other kinds than the backward graph is for.
        twice: What makes gradients differentiable, if that was asked for.
    """
    convention = Convention(signature, graphs, keeps_inputs=twice is not None)
    first = write_forward(convention, forward)
    sources = {"forward": _text(first)}
    runner: Callable[..., Any] = first
    if backward is not None:
        second = write_backward(convention, backward, others)
        sources["backward"] = _text(second)
        chosen = once_differentiable(second) if twice is None else twice.differentiable(second)
        members = {"forward": staticmethod(first), "backward": staticmethod(chosen)}
        function: Any = type("Compiled", (torch.autograd.Function,), members)
        runner = function.apply
    call = write_call(convention, runner, twice)
    sources = {"call": _text(call), **sources}
    before, after = signature.grad_modes
    if before != after or signature.needs_backward > before:
        call = functools.partial(_in_grad_modes, call, before or signature.needs_backward, after)
    return Entry(call, sources)


def _text(function: Any) -> str:
    return str(function.__source__)


def _in_grad_modes(call: Call, enabled: bool, after: bool, *args: list[Any]) -> list[Any]:
    """A call of a program that switches autograd on inside, or does not leave it as it was."""
    with torch.set_grad_enabled(enabled):
        results = call(*args)
    torch.set_grad_enabled(after)
    return results
