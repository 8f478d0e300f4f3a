"""Generates what runs the forward graph and wraps its results: a part of a call, or with gradients a function of
its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.codegen import Source
from subclass_aot.engine.aliasing import flat_base
from subclass_aot.engine.compilers import BoxedFunction
from subclass_aot.engine.descriptors import InnerSize, InnerStride, OutputDescriptor
from subclass_aot.engine.outputs import AliasOfLeaf, InputLeaf, Value
from subclass_aot.engine.runtime import version_counters
from subclass_aot.engine.runtime.calling_convention import Convention, SymintNames, computed_leaves, emit_run
from subclass_aot.kit.flatten import PlainTensorMeta, emit_wrap


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """The locals that hold what forward made.

    Attributes:
        computed: What the graph computed, by what it is.
        values: The values made of it, those of `JointSignature.forward_values`.
        saved: The tensors that are saved for backward.
        sizes: The symbolic numbers that are saved for backward.
    """

    computed: dict[OutputDescriptor, str]
    values: dict[OutputDescriptor, str]
    saved: list[str]
    sizes: list[str]

    @property
    def names(self) -> list[str]:
        """All of them."""
        return [*self.computed.values(), *self.values.values(), *self.saved, *self.sizes]

    def of_part(self, convention: Convention) -> Made:
        """Returns what the function of one of the parts of backward is given.

        Args:
            convention: That of its forward and backward.
        """
        of_whole = convention.graphs.of_whole
        return Made(
            {desc: self.computed[desc] for desc in convention.computed},
            {desc: self.values[desc] for desc in convention.values},
            self.saved if of_whole is None else [self.saved[i] for i in of_whole],
            self.sizes,
        )

    @staticmethod
    def fresh(source: Source, convention: Convention) -> Made:
        """Returns new locals."""
        graphs = convention.graphs
        computed = {desc: source.fresh(str(desc)) for desc in convention.computed}
        values = {desc: source.fresh("value") for desc in convention.values}
        saved = [source.fresh(f"saved_{i}") for i in range(len(graphs.saved))]
        sizes = [source.fresh(f"size_{i}") for i in range(graphs.num_saved_symints)]
        return Made(computed, values, saved, sizes)


def emit_forward(
    source: Source,
    convention: Convention,
    graph: BoxedFunction,
    leaves: Sequence[str],
    inputs: str,
    written: str,
) -> Made:
    """Appends what runs the forward graph, and wraps what it computed.

    Args:
        source: The function.
        convention: What the functions agree on.
        graph: The forward graph, compiled.
        leaves: An expression for each flat slot.
        inputs: An expression of a new list of the graph's inputs.
        written: The local that holds the version counters to set, if there are any.
    """
    made = Made.fresh(source, convention)
    computed = made.computed
    emit_run(source, [*computed.values(), *made.saved, *made.sizes], graph, inputs, "forward")
    symints = SymintNames.of(computed)
    if convention.signature.mutations.moves_versions:
        source.line(f"{source.const(version_counters.set_versions, 'set_versions')}({written})")
    _detach(source, convention, computed)
    values = convention.signature.forward_values.items()
    wrapped = {desc: _wrap(source, value, computed, leaves, symints) for desc, value in values}
    return dataclasses.replace(made, values=wrapped)


def write_forward(convention: Convention, graph: BoxedFunction) -> Callable[..., Any]:
    """Generates `forward(ctx, leaves, non_differentiable, checked, *values)`, the first half of an `autograd.Function`.

    Where the graph runs first, it is `forward(ctx, leaves, made, checked, *values)`. See Note [Made leaves] and Note
    [Parts of backward].

    With second derivatives `kept` stands before `values`: it leads autograd to what they need.

    Values through which no gradient goes are left in the list `non_differentiable`, where autograd does not see them.
    For a graph that writes there is one more parameter after `non_differentiable`: the version counters to set.

    Args:
        convention: What the functions agree on.
        graph: The forward graph, compiled.
    """
    signature = convention.signature
    params = ["ctx", *convention.parameters, *(f"x{i}" for i in convention.requires_grad_inputs)]
    source = Source("forward", ", ".join(params), "Runs the forward graph on leaves, and wraps what it computed.")
    leaves = [f"leaves[{i}]" for i in range(len(signature.index_map.slots))]
    if convention.runs_first:
        made = Made.fresh(source, convention)
        source.line(f"({', '.join(made.names)},) = made")
    else:
        made = emit_forward(source, convention, graph, leaves, _list_of_inputs(source, convention, leaves), "written")
    through = dict.fromkeys(signature.through_autograd)
    non_differentiable = [name for desc, name in made.values.items() if desc not in through]
    non_differentiable += [made.computed[desc] for desc in convention.symints]
    if non_differentiable and not convention.runs_first:
        source.line(f"non_differentiable += [{', '.join(non_differentiable)}]")
    _save(source, convention, made)
    symints = list(SymintNames.of(made.computed).names.values())
    if made.sizes or symints:
        source.line(f"ctx.sizes = [{', '.join([*made.sizes, *symints])}]")
    source.line("ctx.set_materialize_grads(False)")
    live = signature.mutations.in_backward
    if live:  # not among the saved: backward wants them as they are when it runs
        source.line(f"ctx.live = [{', '.join(leaves[s] for s in live)}]")
    if convention.keeps_objects:
        source.line("ctx.objects = objects")
    if convention.structure:
        source.line(f"ctx.structure = [{', '.join(leaves[s] for s in convention.structure)}]")
    source.line(f"return ({', '.join(made.values[desc] for desc in through)},)")
    return source.build()


def _list_of_inputs(source: Source, convention: Convention, leaves: Sequence[str]) -> str:
    """Returns an expression of a list of the graph's inputs, which the graph may empty."""
    signature = convention.signature
    if len(signature.graph_slots) < len(leaves) or signature.mutations.bases:
        return f"[{', '.join(graph_inputs(source, convention, leaves))}]"
    given = (leaf for value in signature.forward_values.values() for leaf in value.leaves)
    read_later = (
        signature.mutations.in_backward
        or convention.structure
        or any(isinstance(leaf, InputLeaf | AliasOfLeaf) for leaf in given)
    )
    return "list(leaves)" if read_later else "leaves"


def graph_inputs(source: Source, convention: Convention, leaves: Sequence[str]) -> list[str]:
    """Returns an expression for each input of the forward graph.

    Args:
        source: The function.
        convention: What the functions agree on.
        leaves: An expression for each flat slot.
    """
    slots, bases = convention.signature.graph_slots, convention.signature.mutations.bases
    sizes = [f", {base.spec.size[0]}" if base.grows else "" for base in bases]
    flat_of = source.const(flat_base, "flat_base") if bases else ""
    flat = [f"{flat_of}({leaves[base.slots[0]]}{size})" for base, size in zip(bases, sizes, strict=True)]
    return [leaves[i] for i in slots] + flat


def _detach(source: Source, convention: Convention, computed: Mapping[OutputDescriptor, str]) -> None:
    """Emits `detach` of graph outputs that alias an input or an output: `Function` sets `grad_fn` on its results."""
    training = convention.signature.needs_backward
    values = convention.signature.forward_values.values()
    dense = {leaf for value in values if isinstance(value.meta, PlainTensorMeta) for leaf in computed_leaves(value)}
    # What stands for a view may be the very tensor that it is a view of: compilers pass over views that change nothing.
    beside = {leaf for value in values if value.view is not None for leaf in computed_leaves(value)}
    for desc, how in convention.graphs.computed.items():
        name = computed[desc]
        if how.is_alias or desc in beside and not isinstance(desc, InnerSize | InnerStride):
            source.line(f"{name} = {name}.detach()")
        elif training and (desc in dense or how.is_view):
            # A view of something unseen could not be written in place later; one of a result that autograd is given
            # would have the history of that.
            source.line(f"if {name}.{_torch.autograd.IS_VIEW}(): {name} = {name}.detach()")


def _wrap(
    source: Source, value: Value, computed: Mapping[OutputDescriptor, str], given: Sequence[str], symints: SymintNames
) -> str:
    """Appends what makes one value of its leaves; returns the name of a local that nobody else has."""
    leaves = []
    for leaf in value.leaves:
        if isinstance(leaf, OutputDescriptor):
            leaves.append(computed[leaf])
        elif isinstance(leaf, InputLeaf):
            leaves.append(given[leaf.slot])
        elif isinstance(leaf, AliasOfLeaf):
            name = source.fresh("alias")
            make = source.const(_alias, "alias_of")
            geometry = ", ".join(map(symints.all, (leaf.spec.size, leaf.spec.stride)))
            dtype = source.const(leaf.spec.dtype, "dtype")
            source.line(f"{name} = {make}({given[leaf.slot]}, {dtype}, {geometry}, {symints.one(leaf.offset)})")
            leaves.append(name)
        else:
            leaves.append(source.const(leaf, "opaque"))
    for bit in value.bits:
        lazy = source.fresh("lazy")
        source.line(f"{lazy} = {source.const(_SET_BIT[bit], bit)}({leaves[0]}).detach()")
        leaves = [lazy]
    return emit_wrap(source, value.meta, leaves)


_SET_BIT = {"conj": torch.conj, "neg": _torch.operators.negated_lazily}


def _save(source: Source, convention: Convention, made: Made) -> None:
    """Appends `save_for_backward`. Beside leaves of a wrapper stands the wrapper: Note [Versions of wrappers].

    Of a result of another part of backward it saves an alias, which counts writes together with it. The result itself
    would keep what that part saves, and two that save one of each other would keep each other for ever.
    """
    names, signature = [], convention.signature
    of_others = set(signature.differentiable) - set(signature.through_autograd)
    leaves_of_others = {leaf for desc in of_others for leaf in computed_leaves(signature.forward_values[desc])}
    for name, saved in zip(made.saved, convention.graphs.saved, strict=True):
        if saved.output is not None and saved.input is None:
            name = made.computed[saved.output]  # the object that is returned, so that autograd sees it is an output
            name += ".detach()" if saved.output in leaves_of_others else ""
        names.append(name)
    asking = set(convention.requires_grad_inputs)
    for of in convention.checked:
        if not isinstance(of, int):
            names.append(made.values[of] + (".detach()" if of in of_others else ""))
        elif of in asking:
            names.append(f"x{of}")
    if convention.saved_for_version_check:
        names.append("*checked")
    source.line(f"ctx.save_for_backward({', '.join(names)})")


def _alias(
    leaf: torch.Tensor, dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> torch.Tensor:
    """Returns a tensor that shares the storage of `leaf`."""
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
