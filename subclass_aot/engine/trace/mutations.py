"""Finds what a traced function did to its inputs, and refuses what no graph can do to them."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

import torch

from subclass_aot.base import _torch
from subclass_aot.engine import descriptors
from subclass_aot.engine.aliasing import (
    Base,
    bases_of,
    has_internal_overlap,
    is_autograd_leaf,
    retains_grad,
    storage_groups,
    versions,
)
from subclass_aot.engine.graph import Recorder, Retrace, messages
from subclass_aot.engine.outcome import Leaf, Outcome
from subclass_aot.engine.outputs import AliasOfLeaf, InputLeaf, Output, Value, ViewOfInput
from subclass_aot.engine.signature import InputMutation, MetadataMutation, Mutations
from subclass_aot.engine.tables import Gradients
from subclass_aot.engine.trace.input_views import check_histories, check_shared_fields
from subclass_aot.engine.trace.inputs import TracedInputs, UserInputs
from subclass_aot.engine.trace.outputs import OutputReader
from subclass_aot.errors import LastingChangeError, MutationError
from subclass_aot.kit.flatten import IndexMap
from subclass_aot.meta import MetaTensor, Storage

OfMetadata = Mapping[int, list[MetadataMutation]]
"""The metadata mutations of inputs, and of views after these, by position."""


def check_metadata_mutations(inputs: TracedInputs, user: UserInputs, recorder: Recorder) -> OfMetadata:
    """Finds the operators that mutated the metadata of inputs.

    Raises:
        MutationError: The function did to an input what a graph cannot do.
        SizesMustBeKnown: The metadata of one with symbolic sizes was mutated.
    """
    _need_gradients(inputs, user, recorder)
    of_each = zip(inputs.plan.paths, inputs.before, inputs.traced, inputs.autograd_leaves, strict=True)
    for path, before, traced, leaf in of_each:
        if before.in_cpp != _torch.autograd.in_cpp(traced):
            raise _exchanged(path, recorder)
        if before.requires_grad and not traced.requires_grad:
            raise LastingChangeError(messages.SWITCHED_GRAD.format(path=path))
        if _torch.autograd.has_hooks(traced):
            raise LastingChangeError(messages.HOOKED_INPUT.format(path=path))
        if leaf is not traced and leaf.grad is not None:
            raise MutationError(messages.BACKWARD_THROUGH_INPUT.format(path=path))
    if inputs.in_cpp and (inside := inputs.exchanged_inside()) is not None:
        raise _exchanged(inside, recorder)
    found: dict[int, list[MetadataMutation]] = {}
    for tensor, step, tracked in recorder.mutations.metadata:
        for i, traced in enumerate(inputs.seen):
            if tensor is traced:
                found.setdefault(i, []).append(MetadataMutation(step, tracked))
    count = len(inputs.traced)
    metadata_mutated = {i for i in found if i < count}
    inputs.need_known_sizes(metadata_mutated)
    inputs.views.check({i - count for i in found if i >= count})
    if metadata_mutated:
        _refuse_mutated_together(inputs, user, metadata_mutated)
    assigned = recorder.listeners.assigned_data.before.values() if "assigned_data" in recorder.listeners else ()
    _refuse_other_leaves(inputs, metadata_mutated, assigned)
    return found


def _exchanged(path: str, recorder: Recorder) -> LastingChangeError:
    """Returns the error for a tensor that the function has exchanged for another one.

    The function itself exchanges those of the call then, and torch exchanges none that weak references lead to.
    """
    recorder.graph.real_inputs = {}  # type: ignore[attr-defined]
    return LastingChangeError(messages.SWAPPED.format(path=path))


def _need_gradients(inputs: TracedInputs, user: UserInputs, recorder: Recorder) -> None:
    """Sees to it that the `.grad` of each input is an input, too, if the function has read or changed it.

    Raises:
        Retrace: One of them is none yet.
    """
    nodes, slots = set(recorder.graph.gradients_asked_for), inputs.plan.index_map.slots  # type: ignore[attr-defined]
    leaves = enumerate(inputs.leaves) if nodes else ()
    asked = {slots[i].outer for i, leaf in leaves if isinstance(leaf, MetaTensor) and leaf.meta_tag in nodes}
    counting, values = user.arguments.with_grad, user.arguments.values
    for i, (before, traced) in enumerate(zip(inputs.before, inputs.traced, strict=True)):
        if counting and counting.counts(values[i]):
            continue
        if i in asked or traced.is_leaf and traced.grad is not before.grad:
            least = Gradients.OF_THOSE_THAT_REQUIRE_IT
            raise Retrace(with_grad=least if least.counts(values[i]) else Gradients.OF_ALL)


def gradients_of_computed(inputs: TracedInputs) -> dict[str, torch.Tensor | None]:
    """Returns the `.grad` of each input that is no leaf, by its path: one that retains it may have one."""
    with warnings.catch_warnings(action="ignore"):  # torch warns of the others
        pairs = zip(inputs.plan.paths, inputs.traced, strict=True)
        return {path: traced.grad for path, traced in pairs if not traced.is_leaf}


def refuse_other_gradients(inputs: TracedInputs, before: Mapping[str, torch.Tensor | None]) -> None:
    """Refuses a change of the `.grad` of an input that is no leaf.

    Args:
        inputs: The inputs.
        before: What `gradients_of_computed` found before.

    Raises:
        MutationError: There is one.
    """
    for path, gradient in gradients_of_computed(inputs).items() if before else ():
        if gradient is not before[path]:
            raise MutationError(messages.GRADIENT_OF_COMPUTED.format(path=path))


def requires_grad_mutations(inputs: TracedInputs) -> tuple[int, ...]:
    """Returns the positions of inputs that began to require grad while the function ran, as by `x.requires_grad_()`."""
    pairs = enumerate(zip(inputs.before, inputs.traced, strict=True))
    return tuple(i for i, (before, now) in pairs if is_autograd_leaf(now) and not before.requires_grad)


def retaining_inputs(inputs: TracedInputs, found: Mutations) -> tuple[int, ...]:
    """Returns the positions of inputs, and of views after these, that the program made keep their gradients.

    Args:
        inputs: The inputs, after the function ran.
        found: What it did to them.

    Raises:
        MutationError: One is written under autograd.
    """
    retaining = tuple(i for i, traced in enumerate(inputs.seen) if retains_grad(traced))
    paths = (*inputs.plan.paths, *inputs.plan.views)
    for i in retaining:
        if i in found.under_autograd or (i >= len(inputs.traced) and found.under_autograd):
            raise MutationError(messages.RETAINED_AND_WRITTEN.format(path=paths[i]))
    return retaining


def mutations_of(
    inputs: TracedInputs,
    user: UserInputs,
    recorder: Recorder,
    reader: OutputReader,
    of_metadata: OfMetadata,
    outcome: Outcome,
) -> Mutations:
    """Decides how each write is done: in the graph, or by generated code, since autograd must see it.

    Args:
        inputs: The inputs, after the function ran.
        recorder: What it did.
        reader: Told of the new values that the graph returns.
        of_metadata: What `check_metadata_mutations` found.
        outcome: What it left in objects, inputs among them.

    Raises:
        MutationError: Tensors share memory in a way that no graph can write.
        Retrace: See Note [Views of one tensor].
        SizesMustBeKnown: One with symbolic sizes shares memory that is written.
    """
    listeners = recorder.listeners
    # What is written later than an assignment is other memory; they count all the same.
    assigned = listeners.assigned_data.before if "assigned_data" in listeners else ()
    reaching = listeners.places.reaching if "places" in listeners else ()
    if not (recorder.mutations or assigned or outcome.changes or reaching):
        return Mutations()
    flat_of = inputs.plan.index_map.flat_of
    written = {storage for storage, phases in recorder.mutations.written.items() if "forward" in phases}
    leaves: dict[int, tuple[int, ...]] = {}
    new_values: dict[int, Value] = {}
    for i, traced in enumerate(inputs.traced) if written else ():
        slots = tuple(s for s in flat_of(i) if inputs.is_among(s, written))
        if slots:
            leaves[i] = slots
            if traced.grad_fn is not inputs.before[i].grad_fn:
                new_values[i] = reader.computed_value(traced, descriptors.AutogradMutation(inputs.plan.descs[i]))
    in_graph = [i for i in leaves if i not in new_values]
    bumps = _version_bumps(inputs, in_graph, new_values, bool(recorder.mutations.metadata), assigned)
    bases = _bases(inputs, user, [s for i in in_graph for s in leaves[i]], new_values, recorder)
    sharing = _sharing_version_counter(inputs, user, new_values)
    data, contexts = _assigned_data(outcome), _mutated_contexts(outcome)
    found = [
        InputMutation(
            i,
            leaves.get(i, ()),
            new_values.get(i),
            tuple(of_metadata.get(i, ())),
            bumps.get(i, ()),
            data.get(i),
            i in contexts,
            i in sharing,
        )
        for i in sorted({*leaves, *bumps, *of_metadata, *data, *contexts})
    ]
    return Mutations(tuple(found), tuple(bases))


def _assigned_data(outcome: Outcome) -> dict[int, int]:
    """Returns the results whose memory inputs get, by the positions of these. See `assigned_data/results.py`."""
    pairs = [(outcome.objects[c.object], c.assigned[0][1]) for c in outcome.changes if c.table.kind == "data"]
    return {int(access_path.steps[0]): result.position for access_path, result in pairs if isinstance(result, Leaf)}


def _mutated_contexts(outcome: Outcome) -> set[int]:
    """Returns the inputs, or views after these, that hold other attributes beside their inner tensors."""
    changed = (outcome.objects[change.object] for change in outcome.changes if change.table.only)
    return {int(access_path.steps[0]) for access_path in changed if access_path.start == "values"}


def with_backward(
    forward: Mutations,
    index_map: IndexMap,
    in_backward: Iterable[int],
    requires_grad: Iterable[int],
    retaining: Iterable[int],
) -> Mutations:
    """Returns the mutations of forward and those that are known when gradients were computed.

    Args:
        forward: The mutations of forward.
        index_map: Which leaf belongs to which input.
        in_backward: The flat slots that backward writes.
        requires_grad: The positions of inputs that begin to require grad.
        retaining: The positions of inputs that keep their gradients.
    """
    found = {mutation.input: mutation for mutation in forward.of_inputs}
    for i in retaining:
        found[i] = dataclasses.replace(found.get(i, InputMutation(i)), retains_grad=True)
    for i in requires_grad:
        found[i] = dataclasses.replace(found.get(i, InputMutation(i)), requires_grad_mutation=True)
    for slot in in_backward:
        of_input = found.get(index_map.outer_of(slot), InputMutation(index_map.outer_of(slot)))
        slots = (*of_input.mutated_in_backward, slot)
        found[of_input.input] = dataclasses.replace(of_input, mutated_in_backward=slots)
    return dataclasses.replace(forward, of_inputs=tuple(found[i] for i in sorted(found)))


def backward_mutations(inputs: TracedInputs, recorder: Recorder, bases: Sequence[Base]) -> tuple[int, ...]:
    """Returns the leaves that are written while gradients are computed, each in its time.

    Raises:
        MutationError: One shares memory that forward writes.
    """
    written = {storage for storage, phases in recorder.mutations.written.items() if "backward" in phases}
    found = [s for s in inputs.plan.graph_slots if inputs.is_among(s, written)] if written else []
    for slot in found:
        if any(slot in base.slots for base in bases):
            raise MutationError(messages.BACKWARD_WRITES.format(path=inputs.plan.desc_of(slot)))
    return tuple(found)


def refuse_views_of_mutated_metadata(
    inputs: TracedInputs, user: UserInputs, recorder: Recorder, found: Mutations, outputs: Sequence[Output]
) -> None:
    """Refuses what autograd makes again of a wrapper that is a view, as it was before its metadata was mutated."""
    metadata_mutated = found.of_metadata.keys()
    slots = inputs.plan.index_map.slots
    for i in metadata_mutated & found.under_autograd.keys():
        if _torch.autograd.base_of(user.arguments.values[i]) is not None and not _is_dense(inputs.traced[i]):
            raise MutationError(messages.MUTATED_VIEW.format(path=inputs.plan.paths[i]))
    for path, view in zip(inputs.views.paths, inputs.views.views, strict=True):
        mutated_at = recorder.mutations.version_before.get(id(view), _torch.autograd.version_of(view))
        if _torch.autograd.version_of(view) > mutated_at + 1 and not _is_dense(view):
            raise MutationError(messages.MUTATED_VIEW.format(path=path))
    for output in outputs:
        leaves = output.leaves if isinstance(output, Value) else ()
        sources = {slots[x.slot].outer for x in leaves if isinstance(x, InputLeaf | AliasOfLeaf)}
        view = output.view if isinstance(output, Value) else output
        if isinstance(view, ViewOfInput) and view.value < len(inputs.traced):
            is_view = _torch.autograd.is_view(user.arguments.values[view.value])
            sources = {view.value} if is_view and inputs.traced[view.value].requires_grad else set()
        dense = {i for i in sources if i < len(inputs.traced) and _is_dense(inputs.traced[i])}
        for i in (sources - dense) & metadata_mutated:
            raise MutationError(messages.VIEW_OF_MUTATED.format(path=inputs.plan.paths[i]))


def _refuse_other_leaves(
    inputs: TracedInputs, metadata_mutated: set[int], assigned: Iterable[tuple[MetaTensor, MetaTensor]]
) -> None:
    """Refuses other inner tensors, or other metadata, of an input without a metadata mutation or other memory."""
    after = [_torch.plain_subclasses.leaf_of(x) for x in inputs.plan.flatten.leaves_of_all(inputs.traced)]
    for slot in inputs.plan.graph_slots:
        leaf = inputs.leaves[slot]
        if not isinstance(leaf, MetaTensor):
            continue
        if leaf.grad_fn is not None and not inputs.plan.is_dense(slot):
            raise MutationError(messages.INNER_GRADIENT.format(path=inputs.plan.desc_of(slot)))
        if inputs.plan.index_map.slots[slot].outer in metadata_mutated and Storage.of(after[slot]) is Storage.of(leaf):
            continue
        if any(before is leaf for _, before in assigned):
            continue
        if after[slot] is not leaf and not inputs.plan.is_dense(slot):
            raise MutationError(messages.REPLACED_LEAF.format(path=inputs.plan.desc_of(slot)))
        if not after[slot].meta_spec.equals(inputs.specs[slot]):
            path, before, now = inputs.plan.desc_of(slot), inputs.specs[slot], after[slot].meta_spec
            raise MutationError(messages.METADATA_MUTATED.format(path=path, before=before, after=now))


def _is_dense(traced: torch.Tensor) -> bool:
    return isinstance(_torch.plain_subclasses.leaf_of(traced), MetaTensor)


def _refuse_mutated_together(inputs: TracedInputs, user: UserInputs, metadata_mutated: set[int]) -> None:
    """Refuses metadata mutations of an inner tensor that another input holds, too: it would change there."""
    slots = inputs.plan.index_map.slots
    for slot in [s for i in metadata_mutated for s in inputs.plan.index_map.flat_of(i)]:
        real = user.leaves[slot]
        for other in inputs.plan.graph_slots:
            same = isinstance(real, torch.Tensor) and user.leaves[other] is real
            if same and slots[other].outer != slots[slot].outer:
                paths = f"{inputs.plan.desc_of(slot)} and {inputs.plan.desc_of(other)}"
                raise MutationError(messages.MUTATED_TOGETHER.format(paths=paths))


def _version_bumps(
    inputs: TracedInputs,
    in_graph: Iterable[int],
    under_autograd: Iterable[int],
    metadata_mutated: bool,
    assigned: Container[int],
) -> dict[int, tuple[str, ...]]:
    """Returns the version counters that move, by the positions of inputs. See `InputMutation.version_bumps`."""
    moved = dict.fromkeys(in_graph)
    if metadata_mutated:  # a tensor with mutated metadata may be a view of any input, and counts on it
        moved |= dict.fromkeys(range(len(inputs.traced)))
    leaves = [_torch.plain_subclasses.leaf_of(traced) for traced in inputs.traced]
    moved |= dict.fromkeys(i for i, leaf in enumerate(leaves) if id(leaf) in assigned)
    found: dict[int, tuple[str, ...]] = {}
    for i in dict.fromkeys([*moved, *under_autograd]):
        before, now = inputs.before[i].versions, versions(inputs.traced[i], inputs.plan.flatten.metas[i])
        # Of one that is mutated under autograd alone, `copy_` counts on the outside.
        bumps = [path for path, version in now.items() if version != before[path] and (path or i in moved)]
        if bumps:
            found[i] = tuple(bumps)
    return found


def _sharing_version_counter(inputs: TracedInputs, user: UserInputs, under_autograd: Collection[int]) -> set[int]:
    """Returns inputs that share a version counter with others. See `InputMutation.shares_version_counter`."""
    shared = {s for group in storage_groups(user.leaves) for s in group} if under_autograd else set()
    return {i for i in under_autograd if not shared.isdisjoint(inputs.plan.index_map.flat_of(i))}


_OF_INFERENCE = """Inplace update to inference tensor outside InferenceMode is not allowed.
  Instead: write into a clone, or call the function in inference mode."""
"""Begins with the words of eager mode."""


def _bases(
    inputs: TracedInputs, user: UserInputs, in_graph: list[int], under_autograd: Iterable[int], recorder: Recorder
) -> list[Base]:
    """Returns the bases through which written leaves that overlap with others are written.

    See Note [Shared storage].
    """
    slots = inputs.plan.index_map.slots
    through_autograd = {s for i in under_autograd for s in inputs.plan.index_map.flat_of(i)}
    written = {*in_graph, *through_autograd}
    resized = {s: recorder.mutations.extents[s] for s in map(Storage.of, recorder.mutations.resized)}
    check_shared_fields(user.arguments.values, {slots[s].outer for s in written}, inputs.plan.paths)
    extents = {s: resized[Storage.of(inputs.leaves[s])] for s in inputs.plan.graph_slots if inputs.is_among(s, resized)}
    path_of = lambda slot: str(inputs.plan.desc_of(slot))  # noqa: E731
    reaching = [s for s in inputs.plan.graph_slots if inputs.is_among(s, recorder.listeners.places.reaching)]
    bases = bases_of(user.leaves, written, path_of, extents, reaching) if written or extents or reaching else []
    based = {s for base in bases for s in base.slots}
    if not inputs.inference and any(user.leaves[s].is_inference() for s in based & written):
        raise RuntimeError(_OF_INFERENCE)  # which the base does not say that is written
    inputs.need_known_sizes(slots[s].outer for s in based)
    together = [{slots[s].outer for s in base.slots} for base in bases]
    overlaps = {i: {j for owners in together if i in owners for j in owners} for i in under_autograd}
    overlapping = {slots[s].outer for s in based if has_internal_overlap(user.leaves[s])}
    check_histories(user.arguments.values, overlaps, overlapping, inputs.plan.paths)
    return bases
