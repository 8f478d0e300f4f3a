"""The generated function that runs the forward graph and wraps what it computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.aliasing import flat_base
from subclass_aot.backends import BoxedFunction
from subclass_aot.codegen import Source
from subclass_aot.flatten import PlainTensorMeta, emit_wrap
from subclass_aot.runtime import version_counters
from subclass_aot.runtime.calling_convention import Convention, SymintNames, emit_run
from subclass_aot.trace import AliasOfLeaf, Computed, InputLeaf, Value


def write_forward(convention: Convention, graph: BoxedFunction) -> Callable[..., Any]:
    """`forward(ctx, leaves, non_differentiable, checked, *values)`; `forward(leaves, non_differentiable)` without grad.

    With second derivatives `kept` stands before `values`: it leads autograd to what they need.

    Values through which no gradient goes are left in the list `non_differentiable`, where autograd does not see them.
    For a graph that writes there is one more parameter after `non_differentiable`: the version counters to settle.

    Args:
        convention: What the functions agree on.
        graph: The forward graph, compiled.
    """
    signature, graphs = convention.signature, convention.graphs
    training = signature.needs_backward
    params = ["leaves", "non_differentiable", *["written"] * convention.counts]
    if training:
        kept = ["kept"] * convention.keeps_inputs
        params = ["ctx", *params, "checked", *kept, *(f"x{i}" for i in convention.requires_grad_inputs)]
    source = Source("forward", ", ".join(params), "Runs the forward graph on leaves, and wraps what it computed.")
    source.line(f"inputs = {_graph_inputs(source, convention)}")
    computed = [source.fresh(f"out_{i}") for i in range(signature.num_computed)]
    saved = [source.fresh(f"saved_{i}") for i in range(len(graphs.saved_inputs))]
    sizes = [source.fresh(f"size_{i}") for i in range(graphs.num_saved_symints)]
    emit_run(source, computed + saved + sizes, graph, "forward")
    numbers = SymintNames({key: computed[position] for key, position in signature.numbers.items()})
    if convention.counts:
        source.line(f"{source.const(version_counters.settle, 'settle')}(written)")
    _detach(source, convention, computed)
    forward_values = [_wrap(source, value, computed, numbers) for value in convention.forward_values]
    pairs = list(zip(forward_values, convention.through_autograd, strict=True))
    non_differentiable = [name for name, through in pairs if not through]
    non_differentiable += [computed[position] for position in convention.positions]
    if non_differentiable:
        source.line(f"non_differentiable += [{', '.join(non_differentiable)}]")
    if not training:
        return source.build()
    _save(source, convention, computed, saved, forward_values)
    if sizes or signature.numbers:
        source.line(f"ctx.sizes = [{', '.join([*sizes, *numbers.names.values()])}]")
    source.line("ctx.set_materialize_grads(False)")
    if signature.backward_writes:  # not among the saved: backward wants them as they are when it runs
        source.line(f"ctx.live = [{', '.join(f'leaves[{s}]' for s in signature.backward_writes)}]")
    if convention.structure:
        source.line(f"ctx.structure = [{', '.join(f'leaves[{s}]' for s in convention.structure)}]")
    source.line(f"return ({', '.join(name for name, through in pairs if through)},)")
    return source.build()


def _graph_inputs(source: Source, convention: Convention) -> str:
    slots, bases = convention.signature.graph_slots, convention.signature.bases
    if len(slots) == len(convention.signature.index_map.slots) and not bases:
        return "list(leaves)"
    inputs = [f"leaves[{i}]" for i in slots]
    inputs += [f"{source.const(flat_base, 'flat_base')}(leaves[{base.slots[0]}])" for base in bases]
    return f"[{', '.join(inputs)}]"


def _detach(source: Source, convention: Convention, computed: list[str]) -> None:
    """Appends what makes computed leaves nobody else's: autograd marks the objects it is given."""
    graphs, training = convention.graphs, convention.signature.needs_backward
    dense = {leaf.position for v in convention.forward_values for leaf in v.leaves
             if isinstance(v.meta, PlainTensorMeta) and isinstance(leaf, Computed)}  # fmt: skip
    for i, alias in enumerate(graphs.fresh_alias):
        if alias:
            source.line(f"{computed[i]} = {computed[i]}.detach()")
        elif training and (i in dense or graphs.is_view[i]):
            # A view of something unseen could not be written in place later; one of a result that autograd is given
            # would have the history of that.
            source.line(f"if {computed[i]}._is_view(): {computed[i]} = {computed[i]}.detach()")


def _wrap(source: Source, value: Value, computed: list[str], numbers: SymintNames) -> str:
    """Appends what makes one value of its leaves; returns the name of a local that nobody else has."""
    leaves = []
    for leaf in value.leaves:
        if isinstance(leaf, Computed):
            leaves.append(computed[leaf.position])
        elif isinstance(leaf, InputLeaf):
            leaves.append(f"leaves[{leaf.slot}]")
        elif isinstance(leaf, AliasOfLeaf):
            name = source.fresh("alias")
            make = source.const(_alias, "alias_of")
            geometry = ", ".join(map(numbers.all, (leaf.spec.size, leaf.spec.stride)))
            dtype = source.const(leaf.spec.dtype, "dtype")
            source.line(f"{name} = {make}(leaves[{leaf.slot}], {dtype}, {geometry}, {numbers.one(leaf.offset)})")
            leaves.append(name)
        else:
            leaves.append(source.const(leaf, "opaque"))
    return emit_wrap(source, value.meta, leaves)


def _save(
    source: Source, convention: Convention, computed: list[str], saved: list[str], forward_values: list[str]
) -> None:
    """Appends `save_for_backward`. Beside leaves of a wrapper stands the wrapper: Note [Versions of wrappers]."""
    graphs = convention.graphs
    names = []
    for i, name in enumerate(saved):
        from_output = graphs.saved_outputs[i]
        if from_output is not None and graphs.saved_inputs[i] is None:
            name = computed[from_output]  # the object that is returned, so that autograd sees it is an output
        names.append(name)
    for kind, position in convention.checked:
        if kind == "output":
            names.append(forward_values[position])
        elif position in convention.requires_grad_inputs:
            names.append(f"x{position}")
    if convention.saved_for_version_check:
        names.append("*checked")
    source.line(f"ctx.save_for_backward({', '.join(names)})")


def _alias(
    leaf: torch.Tensor, dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> torch.Tensor:
    """A tensor that shares the storage of `leaf`."""
    with torch.no_grad():
        alias, start = leaf.detach(), leaf.storage_offset()
        if dtype is not leaf.dtype:  # as the real part of complex numbers
            own, width = leaf.itemsize, dtype.itemsize
            whole = max(width // own, 1)  # elements of the leaf that one of the alias takes
            skip = start % whole
            count = (leaf.untyped_storage().nbytes() // own - skip) // whole * whole
            alias, start = alias.as_strided((count,), (1,), skip).view(dtype), start * own // width
        alias = alias.as_strided(size, stride, start + offset)
    return alias.detach()
