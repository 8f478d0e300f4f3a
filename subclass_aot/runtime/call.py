"""Generates the part of a call behind its guard: forward, what is written back, and the flat results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.backends import BoxedFunction
from subclass_aot.codegen import Source
from subclass_aot.descriptors import OutputDescriptor
from subclass_aot.guards import Reads
from subclass_aot.runtime import version_counters
from subclass_aot.runtime.calling_convention import Convention
from subclass_aot.runtime.double_backward import DoubleBackward
from subclass_aot.runtime.forward import Made, emit_forward, graph_inputs
from subclass_aot.runtime.results import Results
from subclass_aot.signature import JointSignature, MetadataMutation


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """The function that runs with gradients: an `autograd.Function`.

    Attributes:
        apply: Runs it.
        double_backward: What keeps the inputs for second derivatives, if these are wanted.
    """

    apply: Callable[..., Any]
    double_backward: DoubleBackward | None


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
    changes = dict(signature.mutations.of_metadata)
    of_views = {p: changes.pop(p) for p in list(changes) if p >= len(signature.inputs)}
    for position in sorted(changes.keys() | signature.mutations.assigned_data.keys()):
        for slot in set(signature.index_map.flat_of(position)).intersection(signature.graph_slots):
            before, leaves[slot] = leaves[slot], source.fresh("leaf")
            source.line(
                f"{leaves[slot]} = {before}.detach()  # the saved tensor keeps its sizes from before the mutation"
            )
    for mutation in signature.mutations.of_inputs:
        if mutation.requires_grad_mutation:
            source.line(f"{values[mutation.input]}.requires_grad_()")
    reads = Reads(values, leaves, reads.listing)
    if function is not None:
        for position in [p for p in changes if _has_gradient_of_its_new_size(convention, p, changes[p])]:
            source.line(f"{_reshape(source, changes.pop(position), is_counted=False)}({values[position]})")
    if function is None or convention.runs_first:
        ran = _run(source, reads, convention, graph)
        made, symints = ran.values, {desc: ran.computed[desc] for desc in convention.symints}
    else:
        made, symints = _apply(source, reads, convention, function)
    for position, of_input in changes.items():
        source.line(f"{_reshape(source, of_input)}({values[position]})")
    results = Results(source, signature, values, made, symints)
    if function is not None and convention.runs_first:  # see Note [Made leaves]
        for position, result in signature.mutations.assigned_data.items():
            source.line(f"{values[position]}.data = {results.at(result)}")
        _apply_to_leaves(source, reads, convention, function, ran, results)
    under_autograd = (mutation for mutation in signature.mutations.of_inputs if mutation.new_value is not None)
    for mutation, name in zip(under_autograd, made, strict=False):
        value = values[mutation.input]
        if mutation.shares_version_counter:
            source.line(f"{source.const(version_counters.uncount, 'uncount')}({value})")
        source.line(f"{value}.copy_({name})")
    for position, of_input in of_views.items():  # autograd makes a view again, as it is, after such a write
        source.line(f"{_reshape(source, of_input)}({values[position]})")
    return results.all()


def _run(source: Source, reads: Reads, convention: Convention, graph: BoxedFunction) -> Made:
    """Appends what runs the forward graph where autograd sees nothing of it."""
    signature = convention.signature
    written = source.fresh("written")
    if signature.mutations.moves_versions:
        source.line(f"{written} = {_counters(source, signature, reads)}")
    inputs = f"[{reads.listing(graph_inputs(source, convention, reads.leaves))}]"
    # Of leaves that have gradients, the results have none.
    no_grad = bool(convention.requires_grad_inputs) and (signature.grad_modes[0] or convention.runs_first)
    with source.block(f"with {source.const(torch.no_grad, 'no_grad')}():") if no_grad else nullcontext():
        return emit_forward(source, convention, graph, reads.leaves, inputs, written)


def _apply(
    source: Source, reads: Reads, convention: Convention, function: Function
) -> tuple[list[str], dict[OutputDescriptor, str]]:
    """Appends what runs forward by way of autograd.

    Returns:
        The locals of what it made, and of numbers, by what they are.
    """
    made = [source.fresh(f"made_{i}") for i in range(len(convention.forward_values))]
    symints = {desc: source.fresh(str(desc)) for desc in convention.symints}
    beside = source.fresh("non_differentiable")
    source.line(f"{beside} = []")
    given = {"non_differentiable": beside}
    if convention.signature.mutations.moves_versions:
        given["written"] = _counters(source, convention.signature, reads)
    _emit_apply(source, reads, convention, function, given, made, [])
    through = convention.through_autograd
    others = [name for name, seen in zip(made, through, strict=True) if not seen] + list(symints.values())
    if others:
        source.line(f"({''.join(f'{name}, ' for name in others)}) = {beside}")
    return made, symints


def _apply_to_leaves(
    source: Source, reads: Reads, convention: Convention, function: Function, ran: Made, results: Results
) -> None:
    """Appends the call that registers with autograd a graph that ran, once the leaves are there on which its
    results depend.
    """
    first = len(convention.signature.inputs)
    targets = [convention.signature.made_leaves[i - first] for i in convention.requires_grad_inputs if i >= first]
    leaves = [results.of(leaf) for leaf in targets]
    _emit_apply(source, reads, convention, function, {"made": f"[{reads.listing(ran.names)}]"}, ran.values, leaves)


def _emit_apply(
    source: Source,
    reads: Reads,
    convention: Convention,
    function: Function,
    given: dict[str, str],
    made: Sequence[str],
    leaves: Sequence[str],
) -> None:
    """Appends the call of the `autograd.Function`.

    Args:
        source: The function.
        reads: What it has read.
        convention: What the functions agree on.
        function: What is called.
        given: Expressions for some of `convention.parameters`; the others are the same everywhere.
        made: The locals of what forward makes. Autograd gives those that it sees.
        leaves: The locals of made leaves that have a gradient.
    """
    signature, values = convention.signature, reads.values
    given["leaves"] = f"[{reads.listing(reads.leaves[: len(signature.index_map.slots)])}]"
    if convention.keeps_objects:
        source.line("for_backward = []  # objects that backward changes")
        given["objects"] = "for_backward"
    given["checked"] = f"[{', '.join(values[i] for i in convention.saved_for_version_check)}]"
    if function.double_backward is not None:
        inputs = reads.listing(values[: len(signature.inputs)])
        given["kept"] = f"{source.const(function.double_backward.keep, 'keep')}([{inputs}])"
    arguments = [given[name] for name in convention.parameters]
    arguments += [values[i] for i in convention.requires_grad_inputs if i < len(signature.inputs)]
    through = "".join(f"{name}, " for name, seen in zip(made, convention.through_autograd, strict=True) if seen)
    source.line(f"({through}) = {source.const(function.apply, 'run')}({', '.join([*arguments, *leaves])})")


def _has_gradient_of_its_new_size(convention: Convention, position: int, changes: Sequence[MetadataMutation]) -> bool:
    """Returns whether an input got other sizes where autograd does not see it: its gradient has them, too."""
    return position in convention.requires_grad_inputs and not any(change.tracked for change in changes)


def _reshape(source: Source, of_input: Sequence[MetadataMutation], is_counted: bool = True) -> str:
    """Returns the function that does to an input what the program did to its sizes and strides."""
    return source.const(functools.partial(version_counters.reshape, of_input, is_counted=is_counted), "reshape")


def _counters(source: Source, signature: JointSignature, reads: Reads) -> str:
    """Returns an expression of the version counters to settle: of leaves that the graph writes without a version of
    their own moving, and of tensors whose version moves.
    """
    slots = (slot for slot in signature.index_map.slots if slot.kind == "leaf")
    slot_of = {(slot.outer, "".join(slot.path)): slot.flat for slot in slots}
    of_inputs = signature.mutations.of_inputs
    bumps = [(mutation.input, path) for mutation in of_inputs for path in mutation.version_bumps]
    moved = {slot_of.get(where) for where in bumps}
    silent = [reads.leaves[slot] for slot in signature.mutations.in_graph if slot not in moved]
    version_bumps = [
        reads.leaves[slot_of[outer, path]] if path and (outer, path) in slot_of else reads.values[outer] + path
        for outer, path in bumps
    ]
    repeated = [reads.values[mutation.input] for mutation in of_inputs for _ in mutation.metadata_mutations]
    repeated += [reads.values[mutation.input] for mutation in of_inputs if mutation.shares_version_counter]
    version_bumps = [name for name in version_bumps if name not in repeated] + repeated
    find = source.const(version_counters.counters, "counters")
    return f"{find}([{', '.join(silent)}], [{', '.join(version_bumps)}])"
