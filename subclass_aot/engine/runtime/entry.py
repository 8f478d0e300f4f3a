"""The generated code of one signature.

Without gradients it is one function: check, unwrap, run the graph, wrap, return. With gradients the middle of it is an
`autograd.Function`, of which `forward` runs the forward graph and wraps, and `backward` unwraps tangents, runs the
backward graph and wraps gradients.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.base.codegen import Source
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.compilers import BoxedFunction, without_autocast
from subclass_aot.engine.facts import modes_in
from subclass_aot.engine.guards import GuardedFunction, GuardOptions, Reads, is_plain, write_guarded
from subclass_aot.engine.outcome import emit_finish, emit_start
from subclass_aot.engine.runtime.backward import write_backward
from subclass_aot.engine.runtime.call import Function, emit_call
from subclass_aot.engine.runtime.calling_convention import Convention
from subclass_aot.engine.runtime.forward import write_forward
from subclass_aot.engine.runtime.graphs import Graphs
from subclass_aot.engine.runtime.once import once_differentiable
from subclass_aot.engine.runtime.second_derivatives import Again
from subclass_aot.engine.runtime.unexpected_tangents import UnexpectedTangents
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.sizes import first_results


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGraphs:
    """The graphs of a signature, compiled.

    Attributes:
        graphs: The graphs.
        forward: The forward graph, compiled.
        backward: The backward graph, compiled; None without gradients.
        others: What to do with gradients of other kinds than the backward graph is for.
        double_backward: What makes gradients differentiable, if that is wanted.
        parts: Each of the parts of backward, if there are several, with what stands above; then it is None there.
    """

    graphs: Graphs
    forward: BoxedFunction
    backward: BoxedFunction | None = None
    others: UnexpectedTangents | None = None
    double_backward: Again | None = None
    parts: tuple[CompiledGraphs, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """The functions that run for one signature.

    Attributes:
        call: Runs a call that fits.
        is_flat: Whether it is for arguments that are tensors one by one.
        takes_arguments: Whether it reads `args` as they came; otherwise it wants them flattened.
        sources: The generated text, by what it does.
    """

    call: GuardedFunction
    is_flat: bool
    takes_arguments: bool
    sources: dict[str, str]


def make_entry(
    arguments: Arguments, signature: JointSignature, compiled: CompiledGraphs, options: GuardOptions
) -> Entry:
    """Generates the code of one signature.

    Args:
        arguments: The call that was traced.
        signature: Its signature.
        compiled: Its graphs.
        options: What its guard compares beside.
    """
    if modes_in(options.facts).get("autocast"):  # the guard sees to it that autocast is on at each call
        compiled = dataclasses.replace(compiled, forward=without_autocast(compiled.forward))
    convention = Convention(signature, compiled.graphs, keeps_inputs=compiled.double_backward is not None)
    sources: dict[str, str] = {}
    functions: list[Function] = []
    seen = any(
        _torch.plain_subclasses.is_plain_subclass(cls) and _torch.plain_subclasses.sees_functions(cls)
        for cls in map(type, arguments.values)
    )
    if compiled.backward is not None:
        functions.append(_function(convention, compiled, seen, sources))
    for number, part in enumerate(compiled.parts):
        of_part = Convention(signature.of_part(number), part.graphs, keeps_inputs=False)
        functions.append(_function(of_part, part, seen, sources))

    def body(source: Source, reads: Reads) -> None:
        emit_start(source, signature.outcome)
        before, after = signature.grad_modes
        enabled = before or signature.needs_backward
        if before == after == enabled:
            results = emit_call(source, reads, convention, compiled.forward, functions)
        else:  # the program switches autograd on inside, or does not leave it as it was
            mode = source.const(torch.set_grad_enabled, "set_grad_enabled")
            with source.block(f"with {mode}({enabled}):"):
                results = emit_call(source, reads, convention, compiled.forward, functions)
            source.line(f"{mode}({after})")
        if signature.symbolic_dims and not options.within_dynamo:  # which has marks of its own
            positions, dims = zip(*signature.symbolic_dims, strict=True)
            note = source.const(first_results(dims), "note_sizes")
            source.line(f"{note}({', '.join(results[i] for i in positions)})")
        source.line(f"return {emit_finish(source, signature.outcome, reads.values, results, arguments.named)}")

    call = write_guarded(arguments.with_views(signature.views), signature, options, body)
    _torch.dynamo.below_dynamo(call)
    text = _text(call)
    if seen:
        call = _unseen_by_classes(call)
    takes_arguments = arguments.is_flat or is_plain(arguments) and not options.within_dynamo
    return Entry(call, arguments.is_flat, takes_arguments, {"call": text, **sources})


def _function(convention: Convention, compiled: CompiledGraphs, seen: bool, sources: dict[str, str]) -> Function:
    """Generates a function that runs with gradients.

    Args:
        convention: What its forward and backward agree on.
        compiled: The graphs.
        seen: Whether the call brings tensors of classes that see functions of torch.
        sources: Gets the generated text.
    """
    assert compiled.backward is not None
    forward = write_forward(convention, compiled.forward)
    backward = write_backward(convention, compiled.backward, compiled.others)
    _torch.dynamo.below_dynamo(forward)  # which autograd calls, as it does the other one
    _torch.dynamo.below_dynamo(backward)
    number = f" {len(sources) // 2}" if sources else ""
    sources |= {f"forward{number}": _text(forward), f"backward{number}": _text(backward)}
    if seen:
        backward = _unseen_by_classes(backward)
    again = compiled.double_backward
    once = functools.partial(once_differentiable, put=convention.signature.backward_outcome)
    chosen = (once if again is None else again.differentiable)(backward)
    return Function(convention, _applied(convention, forward, chosen), again)


def _unseen_by_classes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that runs where classes do not see functions of torch: what theirs do is in the graph
    already.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _torch.plain_subclasses.without_torch_function():
            return function(*args, **kwargs)

    _torch.dynamo.below_dynamo(run)
    return run


def _applied(convention: Convention, forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that runs forward and has autograd run backward."""
    if hooks.make_node is not None and convention.gives_new_tensors:
        return hooks.make_node(forward, backward, len(convention.parameters))
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: Any = type("Compiled", (torch.autograd.Function,), members)
    _torch.autograd.refuse_compiled_autograd(function)
    apply = _torch.autograd.apply_of(function)
    _torch.autograd.release_with(apply, function)
    return apply


def _text(function: Any) -> str:
    return str(function.__source__)
