"""One run of a function on leaves, forward and backward: the joint graph and its frozen signature."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch, descriptors
from subclass_aot._stack import is_raised_by_user, user_line_of
from subclass_aot.call import Arguments, parallel_modules_are_refused, reads_are_refused
from subclass_aot.descriptors import (
    IntermediateBase,
    LookedAt,
    Number,
    OutputDescriptor,
    PlainOutput,
    SyntheticBase,
)
from subclass_aot.errors import MutationError, SubclassAotError, TraceError
from subclass_aot.graph import (
    REPLACED,
    Draws,
    Looks,
    Recorder,
    messages,
    remove_mutations,
)
from subclass_aot.jagged import JaggedAttention
from subclass_aot.meta import Replaced
from subclass_aot.objects import Objects
from subclass_aot.outcome import Existed, check_leaks, read_outcome
from subclass_aot.outputs import AliasOfLeaf, Value, ViewOfBase, ViewOfInput
from subclass_aot.passes import drop_dead, drop_identities
from subclass_aot.signature import Assumptions, JointSignature
from subclass_aot.sizes import DynamicSizes, fake_with_sizes
from subclass_aot.symbols import RuntimeAssert, is_symbolic, lasting_key_of, unbacked_sizes
from subclass_aot.trace.autograd_graph import foreign_leaves, without_saved_tensor_hooks
from subclass_aot.trace.gradients import Gradients, Tangents, gradients
from subclass_aot.trace.inputs import TracedInputs
from subclass_aot.trace.made_leaves import described, made_leaves
from subclass_aot.trace.mutations import (
    backward_writes,
    check_metadata_mutations,
    refuse_views_of_mutated_metadata,
    requires_grad_mutations,
    writes,
)
from subclass_aot.trace.outputs import OutputReader, is_traced
from subclass_aot.trace.text import numbers_are_written_out
from subclass_aot.trace.threads import one_at_a_time


@dataclass(frozen=True, slots=True, eq=False)
class JointTrace:
    """A traced function: the joint graph of dense tensors, and what its inputs and outputs mean.

    Attributes:
        graph_module: The graph. Placeholders are named `primals_1 ...` and `tangents_1 ...`; each node has `val`,
            `spec`, `stack_trace` and `partitioner_tag` in its `meta`. Placeholders have a descriptor in `meta["desc"]`,
            and the output node has one for each output there: see `subclass_aot.descriptors`.
        signature: What goes in and comes out.
        with_tangents: Goes backward once more, for other tangents: `with_tangents(tangents)` takes, by their positions,
            a tensor of the kind of each, or None for the kind it is traced for; results at other positions take none.
            The forward part of what it gives is the same, node by node. None where nothing needs a gradient.
    """

    graph_module: fx.GraphModule
    signature: JointSignature
    with_tangents: Callable[[Mapping[int, torch.Tensor | None]], JointTrace] | None = None

    @property
    def num_forward_outputs(self) -> int:
        """How many outputs of the graph forward computes; those of backward come after them."""
        descs = self.graph_module.graph.output_node().meta["desc"]
        return sum(not desc.is_backward for desc in descs)


class Trace:
    """The state of one run. Its methods are the steps of `run`, in order."""

    def __init__(
        self,
        fn: Callable[..., Any],
        arguments: Arguments,
        decompositions: Mapping[Any, Callable[..., Any]] | None,
        inference: bool,
        dynamic: DynamicSizes | None,
        values: Looks | None = None,
    ) -> None:
        self.fn = fn
        self.inference = inference
        self.recorder = Recorder(decompositions)
        self.values = self.recorder.values = values
        self.draws = self.recorder.draws = Draws()
        self.inputs = TracedInputs(arguments, self.recorder, dynamic, inference)
        self.symbols = self.inputs.symbols
        if values is not None and self.symbols is not None:
            self.symbols.answer(values.of_symbol, values.cautious)
        self.paths_of_views = arguments.paths_of_views

    def run(self, arguments: Arguments) -> JointTrace:
        graph = self.recorder.graph
        try:
            self.record(arguments)
            trace = self.finish()
        finally:
            graph.is_over = True  # type: ignore[attr-defined]  # see `MetaTensor.tag`
        self.inputs.forget_call()
        self.recorder.forget_tensors()
        if self.values is not None:
            self.values.forget()
        _torch.forget_jagged_dummy()
        check_leaks(self.recorder.made, self.collections(), self.outcome.literals)
        self.recorder.made.clear()
        del self.fn
        return trace if self.tangents is None else dataclasses.replace(trace, with_tangents=self.again)

    def record(self, arguments: Arguments) -> None:
        """Runs the function, forward and backward."""
        with self.tracing(), _torch.force_view_tracking(True):
            self.inputs.make()
            if self.values is not None:
                self.values.start(self.inputs.real_values)
            values = [*self.inputs.traced, *self.inputs.views.views]
            with arguments.replaced(values, stand_ins=True) as call:
                results = self.forward(arguments, arguments.seen(call, values), *call)
                self.read(results)
                self.plan_tangents(dict.fromkeys(range(len(self.differentiable))))
                self.read_symints()
                self.forward_part = self.recorder.mark()
                self.backward()  # checkpoints run parts of the function again
        self.read_values = tuple((s, self.inputs.real_leaves[s].tolist()) for s in sorted(self.recorder.read_slots))

    def collections(self) -> list[Collection[Any]]:
        """Where the trace itself holds traced tensors."""
        ends = [] if self.tangents is None else self.tangents.collections()
        given = self.inputs
        of_inputs = [given.leaves, given.autograd_leaves, given.traced, given.views.views, given.views.leaves]
        of_recorder = [*self.recorder.collections(), *self.forward_part.mutations.collections()]
        return [self.differentiable, self.made_leaves.values(), *ends, *of_inputs, *of_recorder]

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Within the block, operators are recorded."""
        try:
            with self.surroundings(), self.draws, self.recorder:
                yield
        except (RuntimeError, ValueError, IndexError) as error:
            if isinstance(error, SubclassAotError) or not self.recorder.mutations.metadata or is_raised_by_user(error):
                raise
            reason = str(error).splitlines()[0]
            raise MutationError(
                messages.VIEW_OF_MUTATED_BEFORE.format(reason=reason, line=user_line_of(error))
            ) from error

    @contextmanager
    def surroundings(self) -> Iterator[None]:
        """Within the block, nothing of what is around a trace gets into it, and nothing of it gets out."""
        with ExitStack() as stack:
            if self.inputs.structure:
                stack.enter_context(JaggedAttention())
            stack.enter_context(Replaced(self.recorder, REPLACED))
            stack.enter_context(_torch.flex_attention_anywhere())
            stack.enter_context(_torch.without_dynamo())
            stack.enter_context(_torch.compiling())
            stack.enter_context(parallel_modules_are_refused())
            stack.enter_context(self.with_symbols())
            if self.symbols is not None:
                stack.enter_context(numbers_are_written_out())
            stack.enter_context(reads_are_refused())
            stack.enter_context(without_saved_tensor_hooks())
            yield

    @contextmanager
    def with_symbols(self) -> Iterator[None]:
        """Within the block, operators may make numbers that depend on data, if this trace has symbols."""
        if self.symbols is None:
            with unbacked_sizes(None):
                yield
        else:
            with unbacked_sizes(self.symbols), _torch.python_dispatcher(), _torch.quiet_about_unknowns():
                yield

    def again(self, kinds: Mapping[int, torch.Tensor | None]) -> JointTrace:
        """See `JointTrace.with_tangents`."""
        with one_at_a_time, torch.inference_mode(False), torch.enable_grad():
            fakes = {
                i: None if kind is None else fake_with_sizes(kind.detach(), self.differentiable[i].shape)
                for i, kind in kinds.items()
            }
            self.recorder.rewind(self.forward_part)
            with self.tracing(), _torch.force_view_tracking(True):
                self.plan_tangents(fakes)
                self.backward()
            self.recorder.forget_tensors()
            return self.finish()

    def forward(self, arguments: Arguments, seen: Objects, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Runs the function on traced inputs."""
        before = torch.is_grad_enabled()
        self.recorder.graph.grads_read = []  # type: ignore[attr-defined]  # nodes of tensors whose `.grad` is asked for
        with Existed() as existed:
            out = self.fn(*args, **kwargs)
            self.grad_modes = before, torch.is_grad_enabled()
            self.draws.refuse_seeds()
            results, self.outcome = read_outcome(seen, out, existed, arguments.passed_twice)
        return results

    def read(self, results: list[Any]) -> None:
        """Says what each result is, and which inputs were written how."""
        inputs, recorder = self.inputs, self.recorder
        metadata_mutations = check_metadata_mutations(inputs, recorder)
        seen = [*inputs.traced, *inputs.views.views]
        turned = [tensor for tensor, *_ in recorder.mutations.metadata]
        reader = OutputReader(
            seen, inputs.leaves, recorder.lift, not self.inference, turned, recorder.lazy_views.stand_for
        )
        self.writes = writes(inputs, recorder, reader, metadata_mutations)
        self.outputs = reader.read(results)
        refuse_views_of_mutated_metadata(inputs, recorder, self.writes, self.outputs)
        self.computed = reader.computed
        recorder.lazy_views.refuse_stale(*self.computed.values())
        recorder.mutations.refuse_outdated([x for x in results if isinstance(x, torch.Tensor)])
        self.intermediate_bases = tuple(value for _, value in reader.intermediate_bases)
        through: list[tuple[OutputDescriptor, Any, Value]] = [
            (descriptors.AutogradMutation(inputs.descs[i]), inputs.traced[i], value)
            for i, value in self.writes.autograd_mutations
        ]
        for i, (tensor, output) in enumerate(zip(results, self.outputs, strict=True)):
            if isinstance(output, Value):
                through.append((PlainOutput(i), tensor, output))
        first_of = {
            o.intermediate_base: i for i, o in reversed([*enumerate(self.outputs)]) if isinstance(o, ViewOfBase)
        }
        for i, (tensor, value) in enumerate(reader.intermediate_bases):
            through.append((IntermediateBase(i, PlainOutput(first_of[i])), tensor, value))
        recorder.mutations.turned_views.refuse_read(tensor for _, tensor, _ in through)
        self.made_leaves = made_leaves(results, self.outputs, {desc: tensor for desc, tensor, _ in through})
        self.described = [desc for desc, _, value in through if value.requires_grad]
        self.differentiable = [tensor for _, tensor, value in through if value.requires_grad]

    def plan_tangents(self, kinds: Mapping[int, Any]) -> None:
        """What gradients will come in.

        Args:
            kinds: For each result that has one, by its position, what that looks like; None for the expected.
        """
        ends = {self.described[i]: self.differentiable[i] for i in kinds}
        wanted = not self.inference and (self.inputs.requires_grad_inputs or self.made_leaves)
        self.tangents = Tangents(ends, list(kinds.values())) if ends and wanted else None

    def read_symints(self) -> None:
        """Symbolic numbers that the call needs beside those of the results: the graph returns them, too."""
        specs = [] if self.tangents is None else self.tangents.specs()
        needed = [n for spec in specs for n in (*spec.size, *spec.stride)]
        values = [v for v in (*self.outputs, *self.intermediate_bases) if isinstance(v, Value)]
        for alias in [x for v in values for x in v.leaves if isinstance(x, AliasOfLeaf)]:
            needed += [*alias.spec.size, *alias.spec.stride, alias.offset]
        needed += [n for o in self.outputs if isinstance(o, ViewOfInput | ViewOfBase) for n in o.numbers]
        numbers: dict[Any, Any] = {}
        for number in filter(is_symbolic, needed):
            numbers.setdefault(lasting_key_of(number), number)
        for runtime_assert in [] if self.symbols is None else self.symbols.runtime_asserts():
            numbers = {**runtime_assert.numbers, **numbers}
        if self.values is not None:  # of any of them, something may be assumed yet: see `runtime_asserts`
            for number in self.recorder.numbers.unbacked():
                numbers.setdefault(lasting_key_of(number), number)
        self.computed |= {Number(key, i): number for i, (key, number) in enumerate(numbers.items())}
        looks = [] if self.values is None else self.values.found
        self.looks = tuple(dataclasses.replace(look, leaf=None) for look in looks)
        self.computed |= {LookedAt(i): look.leaf for i, look in enumerate(looks)}
        self.computed_nodes = {desc: self.recorder.node_of(leaf) for desc, leaf in self.computed.items()}
        del self.computed

    def backward(self) -> None:
        """Goes backward, if something wants a gradient."""
        if self.recorder.constants:
            self.refuse_lost_gradients()
        self.gradients = Gradients()
        self.backward_writes: list[int] = []
        if self.tangents is not None:
            try:
                self.gradients = gradients(self.inputs, self.made_leaves, self.tangents, self.recorder)
            except RuntimeError as error:
                if "backward through the graph a second time" not in str(error):
                    raise
                self.without_backward(error)
                return
            self.backward_writes = backward_writes(self.inputs, self.recorder, self.writes.bases)

    def without_backward(self, error: RuntimeError) -> None:
        """The function went backward itself, and what autograd keeps for that is gone: the result has no gradient."""
        if len(self.differentiable) > 1:
            raise TraceError(messages.USED_UP.format(reason=str(error).split(". ")[0])) from error
        self.recorder.rewind(self.forward_part)
        self.recorder.phase = "forward"
        self.tangents = None

    def refuse_lost_gradients(self) -> None:
        """A wrapper met on the way is no input: the graph has no gradient for it."""
        for lost in foreign_leaves(self.differentiable, self.inputs.autograd_leaves):
            if not is_traced(lost):
                kind = type(lost).__name__
                raise TraceError(messages.LOST_GRADIENT.format(kind=kind, shape=list(lost.shape)))

    def finish(self) -> JointTrace:
        """The graph without writes, and its signature."""
        recorder, found = self.recorder, self.writes
        outputs = {**self.computed_nodes, **self.gradients.nodes}
        outputs = {desc: recorder.moved(node) for desc, node in outputs.items()}
        if recorder.mutations:
            written, live = map(self.nodes, (found.mutated_leaves, self.backward_writes))
            bases = {SyntheticBase(tuple(map(self.inputs.desc_of, base.slots))): base for base in found.bases}
            with self.with_symbols():
                functional = remove_mutations(recorder, outputs, written, bases, live)
            recorder, outputs = functional.recorder, functional.outputs
        output = recorder.graph.output(tuple(outputs.values()))
        output.meta["desc"] = tuple(outputs)
        drop_identities(recorder.graph)
        drop_dead(recorder.graph)
        holder = torch.nn.Module()
        for name, tensor in recorder.constants.items():
            holder.register_buffer(name, tensor, persistent=False)
        return JointTrace(_torch.make_graph_module(holder, recorder.graph, "Joint"), self.signature())

    def nodes(self, slots: Sequence[int]) -> list[fx.Node]:
        """The graph inputs of some flat slots."""
        return [self.recorder.node_of(self.inputs.leaves[slot]) for slot in slots]

    def runtime_asserts(self) -> tuple[RuntimeAssert, ...]:
        """What must hold of numbers that depend on data; backward and the removal of writes may have added to it."""
        found = [] if self.symbols is None else self.symbols.runtime_asserts()
        return tuple(x for x in found if all(Number(symbol) in self.computed_nodes for symbol in x.numbers))

    def signature(self) -> JointSignature:
        """What the inputs and outputs of the graph mean."""
        assumptions = Assumptions(self.symbols, self.runtime_asserts(), self.looks, self.read_values)
        looks = bool(assumptions.looks or assumptions.runtime_asserts)
        mutations = dataclasses.replace(
            self.writes,
            requires_grad_mutations=requires_grad_mutations(self.inputs, looks),
            backward_writes=tuple(self.backward_writes),
        )
        return JointSignature(
            inputs=self.inputs.described(self.gradients.found),
            index_map=self.inputs.plan.index_map,
            views=self.paths_of_views,
            mutations=mutations,
            outputs=self.outputs,
            intermediate_bases=self.intermediate_bases,
            made_leaves=described(self.made_leaves, self.outputs, self.gradients, mutations, self.inputs.paths),
            outcome=self.outcome,
            tangents=() if self.tangents is None else self.tangents.described,
            assumptions=assumptions,
            grad_modes=self.grad_modes,
        )
