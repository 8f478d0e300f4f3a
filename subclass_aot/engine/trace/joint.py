"""One run of a function on leaves, forward and backward: the joint graph and its frozen signature."""

from __future__ import annotations

import dataclasses
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.lru_caches import forget_in_caches
from subclass_aot.base.put_back import PutBack
from subclass_aot.base.shown_type import NO_PROGRAM, modules_of_programs, types_shown
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.descriptors import Number, SyntheticBase, describe, descriptor_of
from subclass_aot.engine.graph import Recorder, Retrace, remove_mutations
from subclass_aot.engine.outcome import OlderObjects, Present, find_holders
from subclass_aot.engine.signature import Assumptions, Dims, JointSignature
from subclass_aot.engine.sizes import fake_with_sizes
from subclass_aot.engine.stages import note_stage
from subclass_aot.engine.trace import numbers as symbolic
from subclass_aot.engine.trace.attempt import Attempt
from subclass_aot.engine.trace.backward import Backward, run_backward
from subclass_aot.engine.trace.beginnings import beginnings
from subclass_aot.engine.trace.forward import Forward, run_forward
from subclass_aot.engine.trace.handlers import traced_until_the_end
from subclass_aot.engine.trace.inputs import TracedInputs, UserInputs, plan_inputs, trace_inputs
from subclass_aot.engine.trace.made_leaves import described
from subclass_aot.engine.trace.mutations import requires_grad_mutations, retaining_inputs, with_backward
from subclass_aot.engine.trace.settings import settings_noted
from subclass_aot.engine.trace.surroundings import recording, with_symbols
from subclass_aot.engine.trace.tangents import Tangents
from subclass_aot.engine.trace.threads import one_at_a_time
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.meta import Listener, MetaTensor, threads
from subclass_aot.meta.symbols import is_symbolic, plain


@dataclass(frozen=True, slots=True, eq=False)
class JointTrace:
    """A traced function: the joint graph of dense tensors, and what its inputs and outputs mean.

    Attributes:
        graph_module: The graph. Placeholders are named `primals_1 ...` and `tangents_1 ...`; each node has `val`,
            `spec`, `stack_trace` and `partitioner_tag` in its `meta`. Placeholders have a descriptor,
            and the output node has one for each output: see `subclass_aot.descriptors`.
        signature: What goes in and comes out.
        with_tangents: Goes backward once more, for other tangents: `with_tangents(tangents)` takes, by their positions,
            a tensor of the kind of each, or None for the kind it is traced for; results at other positions take none.
            `with_tangents(tangents, present)` does so for what objects hold by now. See Note [Outcome of backward].
            The forward part of what it gives is the same, node by node. None where nothing needs a gradient.
        reads_objects: Whether hooks read tensors that objects hold by now. They are constants of the graph.
    """

    graph_module: fx.GraphModule
    signature: JointSignature
    with_tangents: Callable[..., JointTrace] | None = None
    reads_objects: bool = False

    @property
    def num_forward_outputs(self) -> int:
        """How many outputs of the graph forward computes; those of backward come after them."""
        descs = descriptor_of(self.graph_module.graph.output_node())
        return sum(not desc.is_backward for desc in descs)


_SEARCHES = 2
"""How often a trace begins again since more functions were found that call `int` on symbols."""


def trace_once(
    fn: Callable[..., Any], attempt: Attempt, decompositions: Mapping[Any, Callable[..., Any]] | None, inference: bool
) -> JointTrace:
    """Runs the function, forward and backward.

    Args:
        fn: What is traced.
        attempt: The call, and how it is traced.
        decompositions: Operators to replace.
        inference: Whether the call is in inference mode.

    Raises:
        Retrace: It has to run once more, in another way.
    """
    values, arguments = attempt.values, attempt.arguments.with_views(attempt.options.views)
    recorder = Recorder(decompositions, values)
    recorder.listeners.annotations.of_any_module = bool(arguments.modules)
    plan, user = plan_inputs(arguments, attempt.sizes)
    if values is not None and plan.symbols is not None:
        plan.symbols.answer(values.of_symbol, values.cautious)
    with _caches_cleared_on_errors(recorder), OlderObjects() as older:
        try:
            with PutBack(partial(_end, recorder.graph)):
                with (
                    settings_noted() as settings,
                    types_shown(_modules_of(fn, arguments)),
                    recording(plan, recorder),
                ):
                    inputs = trace_inputs(plan, user, recorder, inference)
                    forward, backward = _record(fn, inputs, user, recorder, older, attempt)
                read = tuple({**arguments.objects.settings, **settings})
                trace = _joint(inputs, forward, backward, read, arguments.changing)
        except Exception as error:  # the function raised it
            pass_on_interruption(error)
            refused = getattr(recorder.graph, "refused_elsewhere", None)
            if refused is None:
                raise
            raise refused from error
        for each in (recorder, backward.recorder):
            each.forget_tensors()
        if values is not None:
            values.forget()
        _torch.wrappers.forget_jagged_dummy()
        own = [x for each in (inputs, forward, recorder, backward.recorder) for x in each.collections()]
        given = []
        if threading.active_count() == 1:  # another thread may keep what it has met: see `meta/threads.py`
            given = [weakref.ref(x) for x in (*inputs.leaves, *inputs.seen) if isinstance(x, torch.Tensor)]
        holders = find_holders([*recorder.made, *given], own, forward.outcome.literals)
    if holders is not None:
        holders.follow()
        if older.users_are_left_alone:  # what the collector leaves alone is no referrer that it finds
            forget_in_caches(holders.held)
    recorder.made.clear()
    if backward.tangents is None:
        return trace
    again = partial(_with_tangents, inputs, forward, recorder)
    return dataclasses.replace(trace, with_tangents=lambda *given: traced_until_the_end(partial(again, *given)))


@contextmanager
def _caches_cleared_on_errors(recorder: Recorder) -> Iterator[None]:
    """Clears the caches that keep tensors of a trace that failed, or of one before: see `lru_caches.py`."""
    try:
        yield
    except Exception as error:  # of the function's, or of the trace
        pass_on_interruption(error)
        alive = [x for ref in recorder.made if (x := ref()) is not None]
        if forget_in_caches([*recorder.strangers, *alive]) and recorder.strangers:
            raise Retrace from error
        raise


def _modules_of(fn: Callable[..., Any], arguments: Arguments) -> list[dict[str, Any]]:
    """Finds the globals of the modules that the code of a call may come from, torch's and ours excepted."""
    values = [holder.value for holder in arguments.objects.holders]
    functions = [value for value in (fn, getattr(fn, "__func__", fn), *values) if isinstance(value, FunctionType)]
    objects = (fn, *values, *arguments.values, *(module for _, module in arguments.modules))
    classes = {base for cls in {*map(type, objects)} for base in cls.__mro__}
    found = [(cls.__module__, getattr(sys.modules.get(cls.__module__), "__dict__", {})) for cls in classes]
    found += [(function.__module__ or "", function.__globals__) for function in functions]
    own = [names for name, names in found if name.partition(".")[0] not in (*NO_PROGRAM, "builtins")]
    return [*modules_of_programs(), *own]


def _end(graph: Any) -> None:
    """Notes that a trace is over: see `MetaTensor.meta_tag`."""
    graph.is_over = True
    if _torch.plain_subclasses.leaves:
        _torch.plain_subclasses.give_up_fronts(MetaTensor.is_over)


def _record(
    fn: Callable[..., Any],
    inputs: TracedInputs,
    user: UserInputs,
    recorder: Recorder,
    older: OlderObjects,
    attempt: Attempt,
) -> tuple[Forward, Backward]:
    """Runs the function forward and backward. When this returns, nothing but its inputs and what it returns holds
    traced tensors.
    """
    plan = inputs.plan
    placeholders = recorder.graph.find_nodes(op="placeholder")
    given = dict(zip(placeholders, [user.leaves[s] for s in plan.graph_slots], strict=True))
    threads.note(recorder.graph, given)
    values = recorder.listeners.looks
    if values is not None:
        values.start(given, recorder.listeners.random_numbers.start)
    with user.arguments.replaced(inputs.seen, stand_ins=True, in_this_thread=True) as call:
        forward = run_forward(fn, call, inputs, user, recorder, older)
        if plan.symbols is not None and attempt.options.searched < _SEARCHES and symbolic.were_met():
            raise Retrace(searched=attempt.options.searched + 1)  # see Note [Calls of classes of numbers]
        # May run lines of `fn` again.
        backward = run_backward(inputs, forward, forward.tangents, recorder, older, attempt.parts)
    if backward.put is None:
        return dataclasses.replace(forward, after=None), backward
    assert forward.after is not None
    forward.after.fix()
    return forward, backward


def _with_tangents(
    inputs: TracedInputs,
    forward: Forward,
    recorder: Recorder,
    kinds: Mapping[int, torch.Tensor | None],
    present: Sequence[Present] = (),
) -> JointTrace:
    """Traces backward again for other kinds of tangents. See `JointTrace.with_tangents`."""
    assert forward.tangents is not None
    outputs, ends = forward.tangents.outputs, forward.tangents.ends
    with one_at_a_time, PutBack(_torch.modes.modes_put_back()), torch.inference_mode(False), torch.enable_grad():
        fakes = {
            i: None if kind is None else fake_with_sizes(kind.detach(), ends[i].shape) for i, kind in kinds.items()
        }
        objects = nullcontext() if forward.after is None else forward.after.again(present)
        with recording(inputs.plan, recorder), OlderObjects() as older, objects:
            backward = run_backward(inputs, forward, Tangents.of(outputs, ends, fakes), recorder, older)
        constants = backward.recorder.listeners.real_tensors.constants.values()
        held = [leaf for each in present for x in each.tensors for leaf in FlattenPlan.leaves_of(x)]
        reads_objects = any(x.is_set_to(y) for x in constants for y in held if isinstance(y, torch.Tensor))
        backward.recorder.forget_tensors()
        return dataclasses.replace(_joint(inputs, forward, backward), reads_objects=reads_objects)


def _joint(
    inputs: TracedInputs,
    forward: Forward,
    backward: Backward,
    settings: tuple[str, ...] = (),
    numbers: tuple[str, ...] = (),
) -> JointTrace:
    """Returns the graph without writes, and its signature."""
    graph_module = _graph(inputs, forward, backward)
    symbols = inputs.plan.symbols
    read_values = tuple(sorted(backward.recorder.listeners.real_tensors.read_values.items()))
    asserts = () if symbols is None else tuple(symbols.runtime_asserts())  # backward and `_graph` may have added some
    asserts = tuple(x for x in asserts if all(Number(symbol) in forward.nodes for symbol in x.symints))
    begins_read = backward.recorder.begins_read
    begun = beginnings(inputs, begins_read) if begins_read else ()
    assumptions = Assumptions(symbols, asserts, forward.looks, read_values, begun, forward.absent, settings, numbers)
    began, retaining = requires_grad_mutations(inputs), retaining_inputs(inputs, forward.mutations)
    mutations = forward.mutations
    if began or retaining or backward.mutated_leaves:
        mutations = with_backward(mutations, inputs.plan.index_map, backward.mutated_leaves, began, retaining)
    outcome = forward.outcome
    if forward.after is not None:
        objects, kept = forward.after.extended(outcome)
        outcome = dataclasses.replace(outcome, objects=objects, kept=kept)
    signature = JointSignature(
        inputs=inputs.described(backward.gradients),
        index_map=inputs.plan.index_map,
        views=inputs.plan.views,
        mutations=mutations,
        outputs=forward.outputs,
        intermediate_bases=forward.intermediate_bases,
        made_leaves=described(
            forward.made_leaves, forward.outputs, backward.gradients, forward.mutations, inputs.plan.paths
        ),
        outcome=outcome,
        tangents=backward.described_tangents,
        assumptions=assumptions,
        grad_modes=forward.grad_modes,
        backward_outcome=None if backward.put is None else backward.put.outcome,
        parts=backward.parts,
        symbolic_dims=_symbolic_dims(forward.symbolic) if forward.symbolic else (),
    )
    return JointTrace(graph_module, signature)


def _symbolic_dims(sizes: Mapping[tuple[int, str], tuple[Any, ...]]) -> tuple[tuple[int, Dims], ...]:
    """Returns which sizes of results are symbols still, at the end of a trace."""
    found: dict[int, dict[str, tuple[int, ...]]] = {}
    for (i, path), size in sizes.items():
        dims = tuple(dim for dim, n in enumerate(size) if is_symbolic(plain(n)))
        if dims:
            found.setdefault(i, {})[path] = dims
    return tuple((i, tuple(by_path.items())) for i, by_path in found.items())


def _graph(inputs: TracedInputs, forward: Forward, backward: Backward) -> fx.GraphModule:
    """Returns the graph of what was recorded, without writes and without what nobody reads."""
    plan, recorder, found = inputs.plan, backward.recorder, forward.mutations
    note_stage("recorded", recorder.in_order)
    written, live = (
        [recorder.node_of(inputs.leaves[slot]) for slot in slots] for slots in (found.in_graph, backward.mutated_leaves)
    )
    numbers = {} if backward.put is None else backward.put.numbers
    bases = {SyntheticBase(tuple(map(plan.desc_of, base.slots))): base for base in found.bases}
    with with_symbols(plan), Listener.without_listeners():  # listeners have seen these operators already
        functional = remove_mutations(recorder, {**forward.nodes, **numbers, **backward.nodes}, written, bases, live)
    graph = functional.graph
    output = graph.output(tuple(functional.outputs.values()))
    describe(output, tuple(functional.outputs))
    note_stage("joint", lambda: graph.nodes)
    holder = torch.nn.Module()
    for name, tensor in functional.constants.items():
        holder.register_buffer(name, tensor, persistent=False)
    return _torch.graphs.make_graph_module(holder, graph, "Joint")
