"""The generated function that a call runs: forward, what is written back, and the results put together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.codegen import Source
from subclass_aot.runtime import version_counters
from subclass_aot.runtime.calling_convention import Convention, SymintNames
from subclass_aot.runtime.double_backward import DoubleBackward
from subclass_aot.trace import (
    Computed,
    ComputedSymints,
    Constant,
    JointSignature,
    SameAsInput,
    SameAsOutput,
    Value,
    ViewOfBase,
    ViewOfInput,
)

Call = Callable[[list[Any], list[Any]], list[Any]]
"""`call(values, leaves)`, with the tensors of a call and their flat slots, gives the flattened results."""


def write_call(convention: Convention, runner: Callable[..., Any], twice: DoubleBackward | None) -> Call:
    """`call(values, leaves)`: runs forward, writes back, and puts the results together.

    Args:
        convention: What the functions agree on.
        runner: `forward`, by itself or through autograd.
        twice: What keeps the inputs for second derivatives, if that was asked for.
    """
    signature = convention.signature
    doc = "Runs the graph, writes back what it changed, and returns the results."
    source = Source("call", "values, leaves", doc)
    values = [source.fresh(path) for path in (*(given.path for given in signature.inputs), *signature.views)]
    if values:
        source.line(f"({''.join(v + ', ' for v in values)}) = values")
    source.line("non_differentiable = []")
    made = [source.fresh(f"made_{i}") for i in range(len(convention.forward_values))]
    changes: dict[int, list[version_counters.Change]] = {}
    for position, *change in signature.metadata_mutations:
        changes.setdefault(position, []).append(tuple(change))
    of_views = {p: changes.pop(p) for p in list(changes) if p >= len(signature.inputs)}
    for position in changes:
        for slot in set(signature.index_map.flat_of(position)).intersection(signature.graph_slots):
            source.line(f"leaves[{slot}] = leaves[{slot}].detach()  # what is saved of it keeps its look")
    for position in signature.requires_grad_mutations:
        source.line(f"{values[position]}.requires_grad_()")
    pairs = list(zip(made, convention.through_autograd, strict=True))
    _run(source, convention, runner, twice, values, [name for name, through in pairs if through])
    non_differentiable = [name for name, through in pairs if not through]
    locals_of = {position: source.fresh("number") for position in convention.positions}
    non_differentiable += locals_of.values()
    if non_differentiable:
        source.line(f"({', '.join(non_differentiable)},) = non_differentiable")
    for position, of_input in changes.items():
        source.line(f"{_reshape(source, of_input)}({values[position]})")
    for (position, _), name in zip(signature.autograd_mutations, made, strict=False):
        source.line(f"{values[position]}.copy_({name})")
    for position, of_input in of_views.items():  # autograd makes a view again, as it is, after such a write
        source.line(f"{_reshape(source, of_input)}({values[position]})")
    results = _results(source, convention, values, made, locals_of)
    source.line(f"return [{', '.join(results)}]")
    return source.build()


def _reshape(source: Source, of_input: list[version_counters.Change]) -> str:
    """The function that does to an input what the program did to its sizes and strides."""
    return source.const(functools.partial(version_counters.reshape, of_input), "reshape")


def _run(
    source: Source,
    convention: Convention,
    runner: Callable[..., Any],
    twice: DoubleBackward | None,
    values: list[str],
    through: list[str],
) -> None:
    """Appends what runs forward; `through` are the locals of what autograd gives back."""
    signature = convention.signature
    silent, version_bumps = _counters(signature, values)
    run = source.const(runner, "run")
    written = ""
    if convention.counts:
        find = source.const(version_counters.counters, "counters")
        written = f", {find}([{', '.join(silent)}], [{', '.join(version_bumps)}])"
    if signature.needs_backward:
        arguments = "".join(f", {values[i]}" for i in convention.requires_grad_inputs)
        saved_only = ", ".join(values[i] for i in convention.saved_for_version_check)
        kept = "" if twice is None else f", {source.const(twice.keep, 'keep')}(values)"
        source.line(
            f"({', '.join(through)},) = {run}(leaves, non_differentiable{written}, [{saved_only}]{kept}{arguments})"
        )
    elif convention.requires_grad_inputs and signature.grad_modes[0]:
        # Of leaves that have gradients, the results have none.
        with source.block(f"with {source.const(torch.no_grad, 'no_grad')}():"):
            source.line(f"{run}(leaves, non_differentiable{written})")
    else:
        source.line(f"{run}(leaves, non_differentiable{written})")


def _results(
    source: Source, convention: Convention, values: list[str], made: list[str], locals_of: dict[int, str]
) -> list[str]:
    """Appends what makes results of what forward made; returns a local for each."""
    signature = convention.signature
    numbers = SymintNames({key: locals_of[position] for key, position in signature.numbers.items()})
    start = len(signature.autograd_mutations)
    own = [i for i, o in enumerate(signature.outputs) if isinstance(o, Value)]
    name_of = dict(zip(own, made[start:], strict=False))
    intermediate_bases = made[start + len(own) :]
    for name, value in zip(made[start:], convention.forward_values[start:], strict=True):
        if value.starts_grad:
            source.line(f"{name} = {name}.detach().requires_grad_()")
    results: list[str] = []
    for i, output in enumerate(signature.outputs):
        if isinstance(output, Value):
            results.append(name_of[i])
        elif isinstance(output, SameAsInput):
            results.append(values[output.value])
        elif isinstance(output, SameAsOutput):
            results.append(results[output.output])
        elif isinstance(output, ViewOfInput):
            grad = output.requires_grad or not signature.inputs[output.value].requires_grad
            results.append(_view(source, output, values[output.value], grad, numbers))
        elif isinstance(output, ViewOfBase):
            base = intermediate_bases[output.intermediate_base] if output.output is None else name_of[output.output]
            results.append(_view(source, output, base, output.requires_grad, numbers))
        elif isinstance(output, ComputedSymints):
            parts = [locals_of[p.position] if isinstance(p, Computed) else str(p) for p in output.parts]
            results.append(f"{source.const(output.make, 'number')}({', '.join(parts)})")
        else:
            assert isinstance(output, Constant)
            results.append(source.const(output.value, "constant"))
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


def _counters(signature: JointSignature, values: Sequence[str]) -> tuple[list[str], list[str]]:
    """Leaves that the graph writes without a version of their own moving, and tensors whose version moves."""
    leaves = (slot for slot in signature.index_map.slots if slot.kind == "leaf")
    slot_of = {(slot.outer, "".join(slot.path)): slot.flat for slot in leaves}
    moved = {slot_of.get(where) for where in signature.version_bumps}
    silent = [f"leaves[{slot}]" for slot in signature.mutated_leaves if slot not in moved]
    version_bumps = [
        f"leaves[{slot_of[outer, path]}]" if path and (outer, path) in slot_of else values[outer] + path
        for outer, path in signature.version_bumps
    ]
    turned = [values[position] for position, *_ in signature.metadata_mutations]
    return silent, [name for name in version_bumps if name not in turned] + turned
