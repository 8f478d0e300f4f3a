"""`torch.compile(model, backend="subclass_aot")`: Dynamo captures and guards, this library compiles what it captured.

Note [Within torch.compile]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
Dynamo hands over a graph that calls functions of torch, the tensors of the call, wrappers included, and for each of
them a fake with the symbols that it made for sizes. The graph is traced as any function is. What the trace assumes of a
symbol becomes one of Dynamo's guards, since these are made after the graph was compiled. So at a call nothing is left
to check of a tensor by itself. Dynamo does not see what tensors have to do with one another below the surface of a
wrapper: whether inner tensors share memory with other arguments, which matters if that is written, and whether
something is a leaf of autograd's graph. Where that differs, an `aot_compile` of the same graph takes over, with guards
of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from subclass_aot.backends import inductor
from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.logs import log_code
from subclass_aot.doors.dynamo.captured import Captured, nothing
from subclass_aot.doors.dynamo.marks import with_marks
from subclass_aot.doors.dynamo.operators import as_called, assign_data
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.compile import CompiledFunction
from subclass_aot.engine.facts import Scope, global_state, relations_of
from subclass_aot.engine.graph import Retrace
from subclass_aot.engine.guards import MISS, GuardOptions
from subclass_aot.engine.options import Options, compile_graphs
from subclass_aot.engine.outputs import views_of
from subclass_aot.engine.runtime import Entry, OtherValue, make_entry
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.sizes import GivenSizes
from subclass_aot.engine.tables import Gradients
from subclass_aot.engine.trace import Attempt, specialize, trace_arguments
from subclass_aot.errors import DataDependentError, SubclassAotError

_MODE = "mode"
_NAME = "what torch.compile captured"

_UNKNOWN_OPTION = """torch.compile(backend="subclass_aot", options=...): there is no option {name!r}.
  Options: {names}
  They are the keywords of aot_compile, inductor's mode, and inductor's switches."""

_NO_MODE = """torch.compile(backend="subclass_aot"): {what} is for inductor, and not for {compiler!r}.
  Instead: leave the one or the other out; with a mode or a switch of inductor, inductor compiles the graphs."""


def backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that Dynamo captured; `torch.compile` calls it.

    Args:
        gm: The graph.
        example_inputs: The tensors of the call, and numbers.
        mode: One of inductor's, which then compiles the graphs.
        options: The keywords of `aot_compile`, by name; `mode`, since `torch.compile` takes one of the two only; and
            switches of inductor, as `fallback_random`.

    Returns:
        A function of the inputs, one by one.

    Raises:
        SubclassAotError: There is no such option or mode, or a mode is given to another compiler than inductor.

    >>> import torch
    >>> double = torch.compile(lambda x: x * 2, backend="subclass_aot")
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    chosen = _options(options or {}, mode)
    gm = as_called(gm)
    is_seen = not any(_torch.plain_subclasses.is_plain_subclass(type(x)) for x in example_inputs)
    if _torch.dynamo.is_precompiling():
        from subclass_aot.doors.dynamo.precompiled import precompiled  # which brings Dynamo

        return precompiled(Captured.of(gm, example_inputs), example_inputs, chosen, is_seen)
    return with_marks(_function(gm, example_inputs, chosen, is_seen), gm)


def _function(
    gm: fx.GraphModule, example_inputs: Sequence[object], options: Options, is_seen: bool
) -> Callable[..., Any]:
    """Returns a function of the inputs: what was compiled, and what takes over where that does not fit.

    Args:
        gm: The graph.
        example_inputs: The tensors of the call, and numbers.
        options: What to compile with.
        is_seen: Whether classes see functions of torch while it runs.
    """
    later: Callable[..., Any] = CompiledFunction(gm, options)
    if not is_seen:  # what the functions of classes do is in the graph
        later = _unseen_by_classes(later)
    if any(isinstance(x, torch.Tensor) and _torch.wrappers.is_jagged_or_lazy(x) for x in example_inputs):
        return later  # nested ints mean nothing outside of Dynamo's fakes, and of lazy ones the graph itself runs
    if any(node.target is assign_data for node in gm.graph.nodes):
        return later  # Dynamo's fakes have other sizes by now
    captured = Captured.of(gm, example_inputs)
    if captured.loses_sizes:
        return later
    try:
        with _torch.plain_subclasses.without_torch_function():
            compiled = _compile(captured, example_inputs, options)
    except (Retrace, DataDependentError):  # with the gradients of inputs, or for the values of each call
        return later
    except Exception as error:  # of the function's, or of the compiler's
        pass_on_interruption(error)
        if _torch.dynamo.current_solver() is None:
            raise
        return later  # which compiles for these sizes alone what fails with symbols, or raises the same
    call, tensors, minds_inference = compiled.call, compiled.tensors, compiled.minds_inference

    def run(*args: object) -> Any:
        if minds_inference and torch.is_inference_mode_enabled():
            return later(*args)
        given = args if tensors is None else tensors(args)
        try:
            result = call(given, {}, given, None, None)
        except OtherValue:
            result = MISS
        return later(*args) if result is MISS else result

    return run


def _unseen_by_classes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that runs where classes do not see functions of torch."""

    def run(*args: object) -> Any:
        with _torch.plain_subclasses.without_torch_function():
            return function(*args)

    return run


def _options(given: Mapping[str, object], mode: str | None) -> Options:
    """Reads the options.

    Raises:
        SubclassAotError: There is no such option or mode, or a mode is given to another compiler than inductor.
    """
    names = [field.name for field in dataclasses.fields(Options)]
    options: dict[str, Any] = {name: value for name, value in given.items() if name in names}
    switches = {name: value for name, value in given.items() if name not in (*names, _MODE)}
    mode = given.get(_MODE, mode)  # type: ignore[assignment]
    mode = None if mode == "default" else mode
    for name in switches:
        if name not in _torch.inductor.inductor_switch_names():
            raise SubclassAotError(_UNKNOWN_OPTION.format(name=name, names=", ".join((*names, _MODE))))
    if mode is not None or switches:
        compiler = options.setdefault("fw_compiler", "inductor")
        if compiler != "inductor":
            what = f"mode={mode!r}" if mode is not None else f"{next(iter(switches))!r}"
            raise SubclassAotError(_NO_MODE.format(what=what, compiler=compiler))
        options["fw_compiler"] = inductor(mode, **switches)
    return Options(**options)


@dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """The function that runs where Dynamo's guards accept a call.

    Attributes:
        call: The generated function.
        tensors: What the inputs of a graph are as tensors; None if it has nothing else.
        minds_inference: Whether it writes, or returns views. In inference mode autograd keeps no account of either; and
            Dynamo switches that mode off while it compiles, so that nothing says whether the calls will be in it.
    """

    call: Callable[..., Any]
    tensors: Callable[[Sequence[Any]], tuple[torch.Tensor, ...]] | None
    minds_inference: bool


def _compile(captured: Captured, example_inputs: Sequence[object], options: Options) -> _Compiled:
    """Compiles a graph for what Dynamo guards.

    Raises:
        Retrace: It needs more of the call than that.
        DataDependentError: It reads values.
    """
    arguments = Arguments.of(nothing, captured.inputs.tensors(example_inputs), {})
    solver = _torch.dynamo.current_solver()
    sizes, parts = GivenSizes(solver, captured.examples), not options.double_backward

    def begin(with_grad: Gradients, failure: BaseException | None) -> Attempt | None:
        if with_grad or (failure is not None and (sizes or not isinstance(failure, DataDependentError))):
            return None
        if failure is None:
            return Attempt(arguments, sizes or None, parts=parts)
        return None if solver is None else Attempt(arguments, GivenSizes(solver, {}), failure=failure, parts=parts)

    def build(attempt: Attempt) -> tuple[JointSignature, Entry]:
        trace = trace_arguments(captured, attempt, options.replaced)
        call = captured, arguments
        graphs = compile_graphs(_NAME, trace, options, call, lambda fn: CompiledFunction(fn, options))
        joined, scope = arguments.with_views(trace.signature.views), Scope.of(trace.signature)
        guard = GuardOptions(relations_of(joined, global_state(), scope), within_dynamo=True)
        return trace.signature, make_entry(arguments, trace.signature, graphs, guard)

    signature, entry = specialize(begin, build)
    log_code(entry.sources, _NAME)
    inputs = captured.inputs
    as_given = len(inputs.sources) == len(arguments.leaves) and not inputs.numbers and not inputs.held
    views = any(True for _ in views_of(signature.outputs))
    minds_inference = views or signature.mutations.mutates_data or bool(signature.mutations.of_metadata)
    return _Compiled(entry.call, None if as_given else inputs.tensors, minds_inference)
