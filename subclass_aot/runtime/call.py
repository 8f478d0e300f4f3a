"""What a call runs once it is checked: forward, what is written back, and the flat results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, assert_never

import torch

from subclass_aot.backends import BoxedFunction
from subclass_aot.codegen import Source
from subclass_aot.descriptors import OutputDescriptor
from subclass_aot.guards import Reads
from subclass_aot.outputs import ComputedSymints, Constant, SameAsInput, SameAsOutput, Value, ViewOfBase, ViewOfInput
from subclass_aot.runtime import version_counters
from subclass_aot.runtime.calling_convention import Convention, SymintNames
from subclass_aot.runtime.double_backward import DoubleBackward
from subclass_aot.runtime.forward import emit_forward, graph_inputs
from subclass_aot.signature import JointSignature, MetadataMutation


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """What runs with gradients: an `autograd.Function`.

    Attributes:
        apply: Runs it.
        twice: What keeps the inputs for second derivatives, if that was asked for.
    """

    apply: Callable[..., Any]
    twice: DoubleBackward | None


def emit_call(
    source: Source, reads: Reads, convention: Convention, graph: BoxedFunction, function: Function | None
) -> list[str]:
    """Appends what runs forward, writes back, and makes the results.

    Args:
        source: The function of the call.
        reads: What it has read.
        convention: What the functions agree on.
        graph: The forward graph, compiled.
        function: What runs with gradients; it has the forward graph in it.

    Returns:
        An expression for each flat result.
    """
    signature = convention.signature
    values, leaves = reads.values, list(reads.leaves)
    changes: dict[int, list[MetadataMutation]] = {}
    for mutation in signature.mutations.metadata_mutations:
        changes.setdefault(mutation.input, []).append(mutation)
    of_views = {p: changes.pop(p) for p in list(changes) if p >= len(signature.inputs)}
    for position in changes:
        for slot in set(signature.index_map.flat_of(position)).intersection(signature.graph_slots):
            before, leaves[slot] = leaves[slot], source.fresh("leaf")
            source.line(f"{leaves[slot]} = {before}.detach()  # what is saved of it keeps its look")
    for position in signature.mutations.requires_grad_mutations:
        source.line(f"{values[position]}.requires_grad_()")
    reads = Reads(values, leaves, reads.listing)
    if function is None:
        made, numbers = _without_gradients(source, reads, convention, graph)
    else:
        made, numbers = _with_gradients(source, reads, convention, function)
    for position, of_input in changes.items():
        source.line(f"{_reshape(source, of_input)}({values[position]})")
    for (position, _), name in zip(signature.mutations.autograd_mutations, made, strict=False):
        if position in signature.mutations.counted_before:
            source.line(f"{source.const(version_counters.uncount, 'uncount')}({values[position]})")
        source.line(f"{values[position]}.copy_({name})")
    for position, of_input in of_views.items():  # autograd makes a view again, as it is, after such a write
        source.line(f"{_reshape(source, of_input)}({values[position]})")
    return _results(source, convention, values, made, numbers)


def _without_gradients(
    source: Source, reads: Reads, convention: Convention, graph: BoxedFunction
) -> tuple[list[str], dict[OutputDescriptor, str]]:
    """Appends what runs the forward graph. Returns the locals of what it made, and of numbers, by what they are."""
    signature = convention.signature
    written = source.fresh("written")
    if signature.mutations.move_versions:
        source.line(f"{written} = {_counters(source, signature, reads)}")
    inputs = f"[{reads.listing(graph_inputs(source, convention, reads.leaves))}]"
    # Of leaves that have gradients, the results have none.
    no_grad = bool(convention.requires_grad_inputs) and signature.grad_modes[0]
    with source.block(f"with {source.const(torch.no_grad, 'no_grad')}():") if no_grad else nullcontext():
        made = emit_forward(source, convention, graph, reads.leaves, inputs, written)
    return made.values, {desc: made.computed[desc] for desc in convention.numbers}


def _with_gradients(
    source: Source, reads: Reads, convention: Convention, function: Function
) -> tuple[list[str], dict[OutputDescriptor, str]]:
    """Appends what runs forward by way of autograd. Returns the same."""
    values = reads.values
    made = [source.fresh(f"made_{i}") for i in range(len(convention.forward_values))]
    numbers = {desc: source.fresh(str(desc)) for desc in convention.numbers}
    beside = source.fresh("non_differentiable")
    source.line(f"{beside} = []")
    given = {"leaves": f"[{reads.listing(reads.leaves[: len(convention.signature.index_map.slots)])}]"}
    given["non_differentiable"] = beside
    given["checked"] = f"[{', '.join(values[i] for i in convention.saved_for_version_check)}]"
    if convention.signature.mutations.move_versions:
        given["written"] = _counters(source, convention.signature, reads)
    if function.twice is not None:
        inputs = reads.listing(values[: len(convention.signature.inputs)])
        given["kept"] = f"{source.const(function.twice.keep, 'keep')}([{inputs}])"
    arguments = [given[name] for name in convention.parameters]
    arguments += [values[i] for i in convention.requires_grad_inputs]
    pairs = list(zip(made, convention.through_autograd, strict=True))
    through = "".join(f"{name}, " for name, differentiable in pairs if differentiable)
    source.line(f"({through}) = {source.const(function.apply, 'run')}({', '.join(arguments)})")
    others = [name for name, differentiable in pairs if not differentiable] + list(numbers.values())
    if others:
        source.line(f"({''.join(f'{name}, ' for name in others)}) = {beside}")
    return made, numbers


def _reshape(source: Source, of_input: list[MetadataMutation]) -> str:
    """The function that does to an input what the program did to its sizes and strides."""
    return source.const(functools.partial(version_counters.reshape, of_input), "reshape")


def _results(
    source: Source,
    convention: Convention,
    values: Sequence[str],
    made: list[str],
    locals_of: Mapping[OutputDescriptor, str],
) -> list[str]:
    """Appends what makes results of what forward made; returns a local for each."""
    signature = convention.signature
    numbers = SymintNames.of(locals_of)
    start = len(signature.mutations.autograd_mutations)
    own = [i for i, o in enumerate(signature.outputs) if isinstance(o, Value)]
    name_of = dict(zip(own, made[start:], strict=False))
    intermediate_bases = made[start + len(own) :]
    for name, value in zip(made[start:], convention.forward_values[start:], strict=True):
        if value.starts_grad:
            source.line(f"{name} = {name}.detach().requires_grad_()")
    results: list[str] = []
    for i, output in enumerate(signature.outputs):
        match output:
            case Value():
                results.append(name_of[i])
            case SameAsInput():
                results.append(values[output.value])
            case SameAsOutput():
                results.append(results[output.output])
            case ViewOfInput():
                grad = output.requires_grad or not signature.inputs[output.value].requires_grad
                results.append(_view(source, output, values[output.value], grad, numbers))
            case ViewOfBase():
                base = intermediate_bases[output.intermediate_base] if output.output is None else name_of[output.output]
                results.append(_view(source, output, base, output.requires_grad, numbers))
            case ComputedSymints():
                parts = [locals_of[p] if isinstance(p, OutputDescriptor) else str(p) for p in output.parts]
                results.append(f"{source.const(output.make, 'number')}({', '.join(parts)})")
            case Constant():
                results.append(source.const(output.value, "constant"))
            case _:
                assert_never(output)
    return results


def _view(source: Source, view: ViewOfInput | ViewOfBase, base: str, grad: bool, numbers: SymintNames) -> str:
    """Appends a view of the local `base`, made as the program made it; returns the name of its local."""
    name = source.fresh("view")
    arguments = "".join(f", {numbers.one(n)}" for n in view.numbers)
    call = f"{name} = {source.const(view.replay, 'view_of')}({base}{arguments})"
    if grad:
        source.line(call)
    else:
        with source.block(f"with {source.const(torch.no_grad, 'no_grad')}():"):
            source.line(call)
    return name


def _counters(source: Source, signature: JointSignature, reads: Reads) -> str:
    """An expression of the version counters to settle: of leaves that the graph writes without a version of their own
    moving, and of tensors whose version moves.
    """
    slots = (slot for slot in signature.index_map.slots if slot.kind == "leaf")
    slot_of = {(slot.outer, "".join(slot.path)): slot.flat for slot in slots}
    moved = {slot_of.get(where) for where in signature.mutations.version_bumps}
    silent = [reads.leaves[slot] for slot in signature.mutations.mutated_leaves if slot not in moved]
    version_bumps = [
        reads.leaves[slot_of[outer, path]] if path and (outer, path) in slot_of else reads.values[outer] + path
        for outer, path in signature.mutations.version_bumps
    ]
    turned = [reads.values[mutation.input] for mutation in signature.mutations.metadata_mutations]
    written = [reads.values[i] for i in signature.mutations.counted_before]
    version_bumps = [name for name in version_bumps if name not in turned + written] + turned + written
    find = source.const(version_counters.counters, "counters")
    return f"{find}([{', '.join(silent)}], [{', '.join(version_bumps)}])"
