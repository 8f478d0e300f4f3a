"""The first half of a trace: the function runs, and it is read what it gave and what it did."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.generators_elsewhere import drawn_elsewhere
from subclass_aot.base.missing import missing_names
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine import descriptors
from subclass_aot.engine.call import refuse_parallel_method
from subclass_aot.engine.descriptors import IntermediateBase, LookedAt, Number, OutputDescriptor, PlainOutput
from subclass_aot.engine.graph import REPLACED, Look, Recorder, messages
from subclass_aot.engine.outcome import AfterForward, Leaf, OlderObjects, Outcome, read_outcome
from subclass_aot.engine.outputs import (
    AliasOfLeaf,
    Constant,
    InputLeaf,
    Output,
    SameAsInput,
    Value,
    users_of_bases,
    views_of,
)
from subclass_aot.engine.signature import Absent, Mutations
from subclass_aot.engine.trace.absent import absent_names
from subclass_aot.engine.trace.autograd_graph import foreign_leaves, has_functions
from subclass_aot.engine.trace.contexts import contexts_of, refuse_context_changes, unchanged_in_place
from subclass_aot.engine.trace.inputs import TracedInputs, UserInputs
from subclass_aot.engine.trace.made_leaves import LeafDescriptor, made_leaves
from subclass_aot.engine.trace.mutations import (
    check_metadata_mutations,
    gradients_of_computed,
    mutations_of,
    refuse_other_gradients,
    refuse_views_of_mutated_metadata,
)
from subclass_aot.engine.trace.outputs import OutputReader, is_traced
from subclass_aot.engine.trace.settings import settings_stay
from subclass_aot.engine.trace.tangents import Tangents
from subclass_aot.errors import OnlyInEagerModeError, TraceError
from subclass_aot.kit.flatten import FlattenPlan, walk
from subclass_aot.meta import Replaced, threads
from subclass_aot.meta.symbols import is_symbolic, lasting_key_of


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """The results of a run of the function.

    Attributes:
        outcome: What it left behind beside its results.
        grad_modes: Whether autograd was on before it ran, and after.
        outputs: What each of its results is.
        intermediate_bases: Tensors that several results are views of.
        made_leaves: Which of these and of its results are leaves of autograd's graph that it made.
        mutations: What it did to its inputs.
        tangents: The gradients that are expected, if something wants one.
        nodes: The nodes of what the graph returns, by what that is.
        looks: Where it read values.
        absent: Inputs of whose attributes only those count that it has read.
        after: The objects as it left them, where something wants a gradient.
        runs_hooks: Whether backward may run code of the program: hooks that it has made, or functions of autograd.
        symbolic: The sizes of results with symbols in them, and of inner tensors, by the position and the path.
    """

    # More than ten attributes: all that the stages after this one read of the run.
    outcome: Outcome
    grad_modes: tuple[bool, bool]
    outputs: tuple[Output, ...]
    intermediate_bases: tuple[Value, ...]
    made_leaves: Mapping[LeafDescriptor, torch.Tensor]
    mutations: Mutations
    tangents: Tangents | None
    nodes: Mapping[OutputDescriptor, fx.Node]
    looks: tuple[Look, ...]
    absent: tuple[Absent, ...]
    after: AfterForward | None = None
    runs_hooks: bool = False
    symbolic: Mapping[tuple[int, str], tuple[Any, ...]] = field(default_factory=dict)

    def collections(self) -> list[Collection[Any]]:
        """Returns the collections that hold traced tensors."""
        ends = [] if self.tangents is None else self.tangents.collections()
        return [*ends, self.made_leaves, self.made_leaves.values()]


def run_forward(
    fn: Callable[..., Any],
    call: tuple[tuple[Any, ...], dict[str, Any]],
    inputs: TracedInputs,
    user: UserInputs,
    recorder: Recorder,
    older: OlderObjects,
) -> Forward:
    """Runs the function on traced inputs, and reads what it did. The recorder must be listening.

    Args:
        fn: The function.
        call: Its arguments, with traced inputs in them.
        inputs: The traced inputs.
        user: The call they were made for.
        recorder: What listens.
        older: What is older than this run.

    Raises:
        MutationError: The function did to an input what a graph cannot do.
        OnlyInEagerModeError: A result requires a gradient of tensors alone that are gone.
        Retrace: It has to run once more, in another way.
        TraceError: A result depends on what is no input, and requires a gradient.
    """
    random_numbers = recorder.listeners.random_numbers
    random_numbers.in_forward = True
    seen = user.arguments.seen(call, inputs.seen)
    before, hooks = torch.is_grad_enabled(), torch.utils.hooks.RemovableHandle.next_id
    recorder.graph.gradients_asked_for = []  # type: ignore[attr-defined]  # nodes of tensors: see `MetaTensor.grad`
    contexts = contexts_of(inputs.seen, (*inputs.plan.paths, *user.arguments.paths_of_views))
    gradients = gradients_of_computed(inputs) if user.arguments.with_grad else {}
    args, kwargs = call
    if user.arguments.modules:
        refuse_parallel_method(fn)
    dtype = torch.get_default_dtype()
    # Each call sets what the function leaves, when it has run.
    with PutBack(partial(torch.set_default_dtype, dtype)), PutBack(seen.put_back_generators):
        with (
            Replaced(recorder, REPLACED),
            _torch.plain_subclasses.classes_see("as outside"),
            unchanged_in_place(contexts) if contexts else nullcontext(),
            missing_names(inputs.seen) as missed,
            settings_stay(),
        ):
            out = fn(*args, **kwargs)
        left = torch.get_default_dtype()
        for end in recorder.listeners.methods("on_end"):
            end(recorder)
        seen.refuse_changed(drawn_elsewhere(random_numbers.start.elsewhere), random_numbers.line_elsewhere)
    grad_modes = before, torch.is_grad_enabled()
    asked_for = recorder.graph.gradients_asked_for  # type: ignore[attr-defined]
    del recorder.graph.gradients_asked_for  # type: ignore[attr-defined]  # what reads a `.grad` now is not the program
    results, outcome, outcome_reader = read_outcome(seen, out, older, user.arguments.passed_twice, contexts)
    results, outcome = _with_process(results, outcome, recorder, None if left is dtype else left)
    for note in recorder.listeners.methods("on_outcome"):
        outcome, results = note(recorder, outcome, results, inputs)
    recorder.graph.gradients_asked_for = asked_for  # type: ignore[attr-defined]
    of_metadata = check_metadata_mutations(inputs, user, recorder)
    refuse_other_gradients(inputs, gradients)
    hooked = torch.utils.hooks.RemovableHandle.next_id != hooks
    reader = OutputReader(inputs.seen, inputs.leaves, recorder, not inputs.inference, hooked)
    mutations = mutations_of(inputs, user, recorder, reader, of_metadata, outcome)
    outputs = reader.read(results)
    constants = [output.value for output in outputs if isinstance(output, Constant)]
    for tensor in [value for value in constants if isinstance(value, torch.Tensor)]:
        threads.check_made_here(recorder.graph, tensor)
    if contexts:
        refuse_context_changes(inputs.plan.paths, mutations, outputs)
    if recorder.mutations.metadata:
        refuse_views_of_mutated_metadata(inputs, user, recorder, mutations, outputs)
    for check in recorder.listeners.methods("on_computed"):
        check(recorder, reader.computed.values())
    recorder.mutations.refuse_outdated([x for x in results if isinstance(x, torch.Tensor)])

    through = _through_autograd(inputs, mutations, results, outputs, reader)
    if "mutated_views" in recorder.listeners:
        recorder.listeners.mutated_views.refuse_read(tensor for tensor, _ in through.values())
    leaves = made_leaves(results, outputs, {desc: tensor for desc, (tensor, _) in through.items()})
    ends = {desc: tensor for desc, (tensor, value) in through.items() if value.requires_grad}
    if inputs.lost:
        _refuse_inner_gradients([x for x in results if isinstance(x, torch.Tensor) and x.requires_grad], inputs)
    if recorder.listeners.real_tensors.constants:
        _refuse_lost_gradients(ends.values(), inputs)
    modules = [module for _, module in user.arguments.modules]
    bases = tuple(value for _, value in reader.intermediate_bases)
    wanted = ends and not inputs.inference and (inputs.requires_grad_inputs or leaves)
    tangents = Tangents.of(ends, ends.values(), dict.fromkeys(range(len(ends)))) if wanted else None
    answers = recorder.listeners.looks
    if ends and not wanted and not inputs.inference and answers is not None:
        raise OnlyInEagerModeError(messages.FORGOTTEN_LEAF.format(result=next(iter(ends))))
    looks = [] if answers is None else answers.found
    has_symbols = inputs.plan.symbols is not None
    computed: dict[OutputDescriptor, Any] = {
        **reader.computed,
        **(_symints(inputs, recorder, (*outputs, *bases), tangents) if has_symbols else {}),
        **{LookedAt(i): look.leaf for i, look in enumerate(looks)},
    }
    return Forward(
        outcome,
        grad_modes,
        outputs,
        bases,
        leaves,
        mutations,
        tangents,
        {desc: recorder.node_of(leaf) for desc, leaf in computed.items()},
        tuple(dataclasses.replace(look, leaf=None) for look in looks),
        absent_names(inputs, user.arguments, missed),
        None if tangents is None else AfterForward(outcome_reader, inputs.seen, modules),
        tangents is not None and (hooked or has_functions(tangents.ends)),
        _symbolic_sizes(results, outputs) if has_symbols else {},
    )


def _symbolic_sizes(results: Sequence[Any], outputs: Sequence[Output]) -> dict[tuple[int, str], tuple[Any, ...]]:
    """Returns the sizes of results, and of their inner tensors, by the position and the path from there. Left out are
    known ones, inputs, and what has parts that are inputs, or parts of these.
    """
    found: dict[tuple[int, str], tuple[Any, ...]] = {}
    for i, (result, output) in enumerate(zip(results, outputs, strict=True)):
        has_input = isinstance(output, Value) and any(isinstance(leaf, InputLeaf) for leaf in output.leaves)
        if isinstance(result, torch.Tensor) and not has_input and not isinstance(output, SameAsInput):
            parts = walk(result, FlattenPlan.read([result])[0].metas[0])
            sizes = {(i, path): tuple(part.shape) for path, part, _ in parts if isinstance(part, torch.Tensor)}
            found |= {place: size for place, size in sizes.items() if any(map(is_symbolic, size))}
    return found


def _with_process(
    results: list[Any], outcome: Outcome, recorder: Recorder, dtype: torch.dtype | None
) -> tuple[list[Any], Outcome]:
    """Returns the flattened results and the outcome, with what the function leaves behind in the process.

    Args:
        results: The flattened results.
        outcome: What is made of them.
        recorder: What has recorded the function.
        dtype: The default dtype that it leaves, if it is another one.

    Raises:
        TraceError: A later call could not leave that behind, too.
    """
    random_numbers = recorder.listeners.random_numbers
    results = [random_numbers.with_state(recorder, x) if type(x) is torch.Tensor else x for x in results]
    state, keeps = random_numbers.end_forward(recorder)
    leaf = None
    if state is not None:
        results, leaf = [*results, state], Leaf(len(results))
    return results, outcome.leaving(leaf, keeps, dtype)


def _through_autograd(
    inputs: TracedInputs, mutations: Mutations, results: Sequence[Any], outputs: Sequence[Output], reader: OutputReader
) -> dict[OutputDescriptor, tuple[torch.Tensor, Value]]:
    """Returns what autograd may go through: new values of inputs, results, and what several results are views of."""
    through: dict[OutputDescriptor, tuple[torch.Tensor, Value]] = {
        descriptors.AutogradMutation(inputs.plan.descs[i]): (inputs.traced[i], value)
        for i, value in mutations.under_autograd.items()
    }
    for i, (tensor, output) in enumerate(zip(results, outputs, strict=True)):
        if isinstance(output, Value):
            through[PlainOutput(i)] = tensor, output
    users = users_of_bases(outputs)
    for i, (tensor, value) in enumerate(reader.intermediate_bases):
        through[IntermediateBase(i, PlainOutput(users[i]))] = tensor, value
    return through


def _refuse_lost_gradients(ends: Iterable[torch.Tensor], inputs: TracedInputs) -> None:
    """Refuses results that depend on a wrapper met on the way: it is no input, and the graph has no gradient for it."""
    for lost in foreign_leaves(ends, inputs.autograd_leaves):
        if not is_traced(lost):
            raise TraceError(messages.LOST_GRADIENT.format(kind=type(lost).__name__, shape=list(lost.shape)))


def _refuse_inner_gradients(results: Sequence[torch.Tensor], inputs: TracedInputs) -> None:
    """Refuses results that are inner tensors that require grad, or depend on them otherwise than by their wrappers."""
    inner = set(map(id, inputs.lost))
    for lost in (*results, *foreign_leaves(results, inputs.autograd_leaves)):
        if id(lost) in inner:
            raise TraceError(messages.LOST_INNER_GRADIENT.format(shape=list(lost.shape)))


def _symints(
    inputs: TracedInputs, recorder: Recorder, outputs: Sequence[Output], tangents: Tangents | None
) -> dict[OutputDescriptor, Any]:
    """Returns the symbolic numbers that the call needs beside those of the results: the graph returns them, too."""
    needed = [n for spec in ([] if tangents is None else tangents.specs) for n in (*spec.size, *spec.stride)]
    for output in outputs:
        if isinstance(output, Value):
            for alias in [x for x in output.leaves if isinstance(x, AliasOfLeaf)]:
                needed += [*alias.spec.size, *alias.spec.stride, alias.offset]
    needed += [n for _, view in views_of(outputs) for n in view.symints]
    symints: dict[Any, Any] = {}
    for number in filter(is_symbolic, needed):
        symints.setdefault(lasting_key_of(number), number)
    assert inputs.plan.symbols is not None
    for runtime_assert in inputs.plan.symbols.runtime_asserts():
        symints = {**runtime_assert.symints, **symints}
    if recorder.listeners.looks is not None:  # of any of them, something may be assumed yet: see `runtime_asserts`
        for number in recorder.symints.unbacked():
            symints.setdefault(lasting_key_of(number), number)
    return {Number(key, i): number for i, (key, number) in enumerate(symints.items())}
