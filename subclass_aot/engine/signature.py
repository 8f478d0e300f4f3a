"""The meaning of inputs and outputs of a joint graph: frozen values without tensors."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from subclass_aot.engine.aliasing import Base
from subclass_aot.engine.descriptors import (
    AutogradMutation,
    InputDescriptor,
    IntermediateBase,
    OutputDescriptor,
    PlainOutput,
)
from subclass_aot.engine.graph import Look
from subclass_aot.engine.outcome import BackwardOutcome, Change, Outcome
from subclass_aot.engine.outputs import Output, Value, users_of_bases
from subclass_aot.kit.flatten import IndexMap, ValueMeta
from subclass_aot.kit.views import Step
from subclass_aot.meta import Spec
from subclass_aot.meta.symbols import RuntimeAssert, Symbols, is_symbolic

Dims = tuple[tuple[str, tuple[int, ...]], ...]
"""Some dimensions of a tensor and of its inner tensors, each by the path from there: `""`, `".codes"`."""


@dataclass(frozen=True, slots=True)
class Input:
    """One tensor that a call brings.

    Attributes:
        desc: What it is, and where the user finds it.
        meta: How it is made of leaves.
        specs: The spec of each of its leaves; an opaque inner value stands for itself.
        requires_grad: Whether autograd wants a gradient.
        is_leaf: Whether it is a leaf of autograd's graph.
        is_static: Whether its memory stays in place from call to call: a module holds it, or it is marked.
        gradient: How its gradient is made of what backward computes, or None where it has none.
        reach: The positions of the tangents that its gradient comes from. Where none of these arrives, it has none.
        inner_requires_grad: Whether one of its inner tensors requires grad, of which autograd sees nothing.
    """

    desc: InputDescriptor
    meta: ValueMeta
    specs: tuple[Any, ...]
    requires_grad: bool
    is_leaf: bool
    is_static: bool = False
    gradient: Value | None = None
    reach: tuple[int, ...] = ()
    inner_requires_grad: bool = False

    @property
    def path(self) -> str:
        """Where the user finds it, such as `args[0]` or `self.head.weight`."""
        return str(self.desc)


@dataclass(frozen=True, slots=True)
class MadeLeaf:
    """A leaf of autograd's graph that the function makes and gives out: one result, or what several are views of.

    Attributes:
        output: Which one.
        meta: How it is made of leaves.
        is_parameter: Whether it is an `nn.Parameter`.
        gradient: How its gradient is made of what backward computes, or None where no result depends on it.
        reach: The positions of the tangents that its gradient comes from.
    """

    output: PlainOutput | IntermediateBase
    meta: ValueMeta
    is_parameter: bool
    gradient: Value | None = None
    reach: tuple[int, ...] = ()


class MetadataMutation(NamedTuple):
    """An operator that mutates the metadata of an input, such as `t_`.

    Attributes:
        step: The operator, and what it is called with.
        tracked: Whether autograd sees it.
    """

    step: Step
    tracked: bool


@dataclass(frozen=True, slots=True)
class InputMutation:
    """What a call does to one of its inputs: the one record of it, which all that comes after the trace reads.

    Attributes:
        input: The position of the input, or of a view after these, which has metadata mutations and `retains_grad`
            alone.
        mutated_leaves: Its flat slots that forward writes.
        new_value: Its new value, if it is mutated under autograd. The generated call applies it with
            `input.copy_(...)`, outside the graph.
        metadata_mutations: What changes its sizes and strides, in order; a call repeats it on the input itself, before
            it applies new values.
        version_bumps: The tensors whose version counter eager moves where the graph writes, by the path from the input:
            `""` for the input itself, `".codes"` for an inner tensor that is written by its own name.
        assigned_data: The result whose memory it gets, by its position, as by `x.data = y`.
        mutates_context: Whether attributes change of which its class makes its context.
        shares_version_counter: Whether it has a new value and may count together with another input: parts of one
            storage. What is saved of the other one, if they lie apart, stays valid when this one is written.
        requires_grad_mutation: Whether it begins to require grad; the call sees to it before it runs the graph.
        mutated_in_backward: Its flat slots that are written while gradients are computed. Backward reads them as they
            are when it runs: each is one more graph input after the tangents, and its new value one more output.
        retains_grad: Whether it is no leaf of autograd's graph, and gets a `.grad` all the same: `x.retain_grad()`.
    """

    # More than ten attributes: each is another thing that a program does to an input.
    input: int
    mutated_leaves: tuple[int, ...] = ()
    new_value: Value | None = None
    metadata_mutations: tuple[MetadataMutation, ...] = ()
    version_bumps: tuple[str, ...] = ()
    assigned_data: int | None = None
    mutates_context: bool = False
    shares_version_counter: bool = False
    requires_grad_mutation: bool = False
    mutated_in_backward: tuple[int, ...] = ()
    retains_grad: bool = False


@dataclass(frozen=True)
class Mutations:
    """What a call does to its inputs.

    Attributes:
        of_inputs: What it does to each that it mutates, in the order of inputs, and of views after these.
        bases: Storages that several leaves share and the graph writes: graph inputs of their own, after the leaves.
    """

    of_inputs: tuple[InputMutation, ...] = ()
    bases: tuple[Base, ...] = ()

    @property
    def mutates_data(self) -> bool:
        """Whether forward changes the data of an input."""
        return bool(self.bases) or any(mutation.mutated_leaves for mutation in self.of_inputs)

    @property
    def moves_versions(self) -> bool:
        """Whether there are version counters to set at a call."""
        return bool(self.in_graph) or any(
            mutation.version_bumps or mutation.metadata_mutations or mutation.shares_version_counter
            for mutation in self.of_inputs
        )

    @cached_property
    def in_graph(self) -> tuple[int, ...]:
        """The flat slots that the graph writes one by one at the end of forward: not under autograd, nor in a base."""
        in_bases = {slot for base in self.bases for slot in base.slots}
        written = (slot for m in self.of_inputs if m.new_value is None for slot in m.mutated_leaves)
        return tuple(slot for slot in written if slot not in in_bases)

    @cached_property
    def under_autograd(self) -> dict[int, Value]:
        """The new values of inputs that are mutated under autograd, by position."""
        return {m.input: m.new_value for m in self.of_inputs if m.new_value is not None}

    @cached_property
    def of_metadata(self) -> dict[int, tuple[MetadataMutation, ...]]:
        """The metadata mutations of inputs, and of views after these, by position."""
        return {m.input: m.metadata_mutations for m in self.of_inputs if m.metadata_mutations}

    @cached_property
    def assigned_data(self) -> dict[int, int]:
        """The positions of results whose memory inputs get, by the positions of these."""
        return {m.input: m.assigned_data for m in self.of_inputs if m.assigned_data is not None}

    @cached_property
    def in_backward(self) -> tuple[int, ...]:
        """The flat slots that backward writes."""
        return tuple(slot for mutation in self.of_inputs for slot in mutation.mutated_in_backward)


class Beginning(NamedTuple):
    """The offset at which a tensor of the call begins in its storage, where the program read it. See Note [Places in
    memory].

    Attributes:
        input: The position of the input, or of a view after these.
        path: The path from there: `""` for the input itself, `".codes"` for an inner tensor.
        offset: The number of elements before it.
    """

    input: int
    path: str
    offset: int


class Absent(NamedTuple):
    """A tensor of the call that has no attributes of the program's. See Note [Absent attributes].

    Attributes:
        input: The position of the input, or of a view after these.
        names: The attributes that the program has read of it.
    """

    input: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TangentSpec:
    """A gradient that comes into backward.

    Attributes:
        output: Of which output.
        meta: How it is made of leaves. It has slots for symbolic sizes, but the sizes are those of the output.
        specs: The spec of each of its leaves.
        error: Why none must come in: autograd cannot go back from this output, as in eager mode.
        runs_code: Whether zeros in its place would run code of the program, in backward, that eager mode does not run.
    """

    output: OutputDescriptor
    meta: ValueMeta
    specs: tuple[Any, ...]
    error: str | None = None
    runs_code: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A part of backward. See Note [Parts of backward].

    Attributes:
        ends: The results that it begins at, and nothing else does.
        gradients: The gradients that it gives: of what, by its position among `JointSignature.gradient_targets`, how
            each is made, and the positions of the tangents that it comes from, among those of the part.
    """

    ends: tuple[OutputDescriptor, ...]
    gradients: tuple[tuple[int, Value, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Assumptions about sizes and values, which each call checks.

    Attributes:
        symbols: The symbols of the trace, or None where every number is known. See Note [Symbolic sizes].
        runtime_asserts: What the program says of unbacked symints, or the trace assumed.
        looks: Values that the program read. See Note [Reads of values].
        read: Inputs whose values were read while tracing, by flat slot, and these values.
        beginnings: Where inputs begin in their storages, if the program depends on it.
        absent: Inputs of whose attributes only those count that the program has read.
        settings: The settings of torch that the program has read, as `torch.get_num_threads()`.
        numbers: The paths of numbers of Python that change from call to call.
    """

    symbols: Symbols | None = None
    runtime_asserts: tuple[RuntimeAssert, ...] = ()
    looks: tuple[Look, ...] = ()
    read: tuple[tuple[int, Any], ...] = ()
    beginnings: tuple[Beginning, ...] = ()
    absent: tuple[Absent, ...] = ()
    settings: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True)
class JointSignature:
    """The meaning of the inputs and outputs of a joint graph. Holds no tensor.

    The inputs and outputs of the graph itself have descriptors: see `subclass_aot.descriptors`.

    Attributes:
        inputs: The tensors of the call, each once.
        index_map: Which leaf belongs to which input.
        views: Where the user finds tensors that are views of an input and are no inputs themselves. `SameAsInput` and
            `InputMutation` count them after the inputs.
        mutations: What a call does to its inputs.
        outputs: What each flattened result is.
        intermediate_bases: Tensors that are no results, and of which several results are views.
        made_leaves: Which of these and of the results are leaves of autograd's graph.
        outcome: What is made of the results, and what objects hold after the call.
        tangents: The gradients that come in, for each output through which autograd goes.
        assumptions: What was assumed of sizes and values.
        grad_modes: Whether autograd is on when the program begins, and when it ends.
        backward_outcome: What hooks put into objects when gradients are computed; None where they change none.
        parts: The parts of backward, if there are several. A gradient of `inputs` and `made_leaves` is that of the
            first part which gives one.
        ends: The results that a part begins at, if this is the signature of one: see `of_part`.
        symbolic_dims: Which dims of results are symbols, by the position of each result that has any and is no input.
    """

    # More than ten attributes: this is all that the stages after the trace know of it, in one place.

    inputs: tuple[Input, ...]
    index_map: IndexMap
    views: tuple[str, ...]
    mutations: Mutations
    outputs: tuple[Output, ...]
    intermediate_bases: tuple[Value, ...]
    made_leaves: tuple[MadeLeaf, ...]
    outcome: Outcome
    tangents: tuple[TangentSpec, ...]
    assumptions: Assumptions
    grad_modes: tuple[bool, bool]
    backward_outcome: BackwardOutcome | None = None
    parts: tuple[Part, ...] = ()
    ends: tuple[OutputDescriptor, ...] | None = None
    symbolic_dims: tuple[tuple[int, Dims], ...] = ()

    def of_part(self, number: int) -> JointSignature:
        """Returns what the same forward means beside one of the parts of backward, as if there were no others.

        Args:
            number: Which part.
        """
        part = self.parts[number]
        given = {target: {"gradient": value, "reach": reach} for target, value, reach in part.gradients}
        none: dict[str, Any] = {"gradient": None, "reach": ()}
        inputs = [dataclasses.replace(x, **given.get(i, none)) for i, x in enumerate(self.inputs)]
        leaves = enumerate(self.made_leaves, len(self.inputs))
        return dataclasses.replace(
            self,
            inputs=tuple(inputs),
            made_leaves=tuple(dataclasses.replace(x, **given.get(i, none)) for i, x in leaves),
            tangents=tuple(tangent for tangent in self.tangents if tangent.output in part.ends),
            parts=(),
            ends=part.ends,
        )

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """What forward and backward put into objects."""
        later = () if self.backward_outcome is None else self.backward_outcome.outcome.changes
        return (*self.outcome.changes, *later)

    @property
    def assigned_paths(self) -> set[str]:
        """Where the user finds what forward and backward put into objects, at keys that are the same at each call."""
        later = self.backward_outcome
        return self.outcome.assigned_paths | (set() if later is None else later.outcome.assigned_paths)

    @cached_property
    def gradient_targets(self) -> tuple[Input | MadeLeaf, ...]:
        """What backward may compute a gradient of: the inputs, and made leaves after them."""
        return *self.inputs, *self.made_leaves

    @cached_property
    def forward_values(self) -> dict[OutputDescriptor, Value]:
        """The values that forward makes: new values of inputs, results, and what several results are views of."""
        found: dict[OutputDescriptor, Value] = {}
        for position, value in self.mutations.under_autograd.items():
            found[AutogradMutation(self.inputs[position].desc)] = value
        for i, output in enumerate(self.outputs):
            if isinstance(output, Value):
                found[PlainOutput(i)] = output
        users = users_of_bases(self.outputs)
        bases = enumerate(self.intermediate_bases)
        return found | {IntermediateBase(i, PlainOutput(users[i])): value for i, value in bases}

    @cached_property
    def through_autograd(self) -> tuple[OutputDescriptor, ...]:
        """Those of `forward_values` that autograd is given. The others go beside, in the list `non_differentiable`."""
        return self.differentiable if self.ends is None else self.ends

    @cached_property
    def differentiable(self) -> tuple[OutputDescriptor, ...]:
        """Those of `forward_values` that autograd goes through, in any of the parts of backward."""
        made = self.forward_values.items() if self.needs_backward else ()
        return tuple(desc for desc, value in made if value.requires_grad)

    def output_of(self, leaf: MadeLeaf) -> Output:
        """Returns the output that a made leaf is, beside that."""
        results = self.outputs if isinstance(leaf.output, PlainOutput) else self.intermediate_bases
        return results[leaf.output.index]

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Where the user finds each input, and each view after these."""
        return *(given.path for given in self.inputs), *self.views

    def path_of(self, slot: int) -> str:
        """Returns where the user finds the tensor of a flat slot, such as `self.head.weight.codes`."""
        place = self.index_map.slots[slot]
        return self.inputs[place.outer].path + "".join(place.path)

    @cached_property
    def leaf_numbers(self) -> dict[int, int]:
        """The number of each flat slot among those that are no symbolic sizes, of which a call has none."""
        leaves = [slot for slot, place in enumerate(self.index_map.slots) if place.dim is None]
        return {slot: number for number, slot in enumerate(leaves)}

    @cached_property
    def graph_slots(self) -> tuple[int, ...]:
        """The flat slots that are graph inputs: all but opaque inner values."""
        patterns = (x for given in self.inputs for x in given.specs)
        return tuple(i for i, x in enumerate(patterns) if isinstance(x, Spec) or is_symbolic(x))

    @property
    def static_input_indices(self) -> tuple[int, ...]:
        """The graph inputs whose memory stays in place: the leaves of static inputs."""
        flat = set(self.index_map.to_flat(i for i, given in enumerate(self.inputs) if given.is_static))
        return tuple(position for position, slot in enumerate(self.graph_slots) if slot in flat)

    @property
    def needs_backward(self) -> bool:
        """True if autograd goes through at least one result."""
        return bool(self.tangents)
