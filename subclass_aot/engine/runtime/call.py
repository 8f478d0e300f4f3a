"""Generates the part of a call behind its guard: forward, what is written back, and the flat results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.base.codegen import Source
from subclass_aot.engine.compilers import BoxedFunction
from subclass_aot.engine.descriptors import AutogradMutation, OutputDescriptor
from subclass_aot.engine.guards import Reads
from subclass_aot.engine.runtime import version_counters
from subclass_aot.engine.runtime.calling_convention import Convention
from subclass_aot.engine.runtime.forward import Made, emit_forward, graph_inputs
from subclass_aot.engine.runtime.results import Results
from subclass_aot.engine.runtime.second_derivatives import Again
from subclass_aot.engine.signature import InputMutation


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function that runs with gradients: an `autograd.Function`.

    Attributes:
        convention: What its forward and backward agree on.
        apply: Runs it.
        double_backward: What keeps the inputs for second derivatives, if these are wanted.
    """

    convention: Convention
    apply: Callable[..., Any]
    double_backward: Again | None = None


def emit_call(
    source: Source, reads: Reads, convention: Convention, graph: BoxedFunction, functions: Sequence[Function] = ()
) -> list[str]:
    """Appends what runs forward, writes back, and makes the results.

    Args:
        source: The function of the call.
        reads: What it has read.
        convention: What the functions agree on.
        graph: The forward graph, compiled.
        functions: What runs with gradients: none, one which has the forward graph in it, or one for each part of
            backward.

    Returns:
        An expression for each flat result.
    """
    return _Writer(source, reads, convention, graph, functions).write()


class _Writer:
    """Writes the lines of one call, in their order."""

    def __init__(
        self,
        source: Source,
        reads: Reads,
        convention: Convention,
        graph: BoxedFunction,
        functions: Sequence[Function],
    ) -> None:
        self.source, self.convention, self.graph, self.functions = source, convention, graph, functions
        self.signature, self.mutations = convention.signature, convention.signature.mutations
        self.values, self.leaves, self.listing = reads.values, list(reads.leaves), reads.listing

    def write(self) -> list[str]:
        """Appends all of it."""
        count = len(self.signature.inputs)
        of_inputs = [mutation for mutation in self.mutations.of_inputs if mutation.input < count]
        early = [mutation for mutation in of_inputs if self.changes_first(mutation)]
        late = [mutation for mutation in of_inputs if not self.changes_first(mutation)]
        self.detach_leaves(of_inputs)
        ran, applies_last = None, self.convention.applies_last
        with self.beginning_to_require_grad([mutation for mutation in of_inputs if mutation.requires_grad_mutation]):
            self.reshape(early, is_counted=False)
            if not self.functions or self.convention.runs_first:
                ran = self.run()
                made, symints = ran.values, {desc: ran.computed[desc] for desc in self.convention.symints}
                for function in () if applies_last else self.functions:  # see Note [Parts of backward]
                    self.apply_after(function, ran)
            else:
                made, symints = self.apply(self.functions[0])
        self.reshape(late)
        results = Results(self.source, self.signature, self.values, made, symints)
        if self.functions and ran is not None and applies_last:  # see Note [Made leaves]
            for position, result in self.mutations.assigned_data.items():
                self.source.line(f"{self.values[position]}.data = {results.at(result)}")
            for function in self.functions:
                self.apply_after(function, ran, results)
        self.copy_new_values(of_inputs, made)
        # Autograd makes a view again, as it is, after such a write.
        self.reshape([mutation for mutation in self.mutations.of_inputs if mutation.input >= count])
        for mutation in self.mutations.of_inputs:
            if mutation.retains_grad:
                self.source.line(f"{self.values[mutation.input]}.retain_grad()")
        return results.all()

    @contextmanager
    def beginning_to_require_grad(self, mutations: Sequence[InputMutation]) -> Iterator[None]:
        """Has inputs require grad where the block runs the graph. Where a check of values fails, they do so no more:
        another program may follow.
        """
        if not mutations:
            yield
            return
        names = [self.values[mutation.input] for mutation in mutations]
        with self.source.block("try:"):
            for name in names:
                self.source.line(f"{name}.requires_grad_()")
            yield
        with self.source.block("except BaseException:"):
            for name in names:
                self.source.line(f"{name}.requires_grad_(False)")
            self.source.line("raise")

    def changes_first(self, mutation: InputMutation) -> bool:
        """Returns whether an input gets other sizes where autograd does not see it: its gradient has them, too."""
        has_gradient = bool(self.functions) and mutation.input in self.convention.requires_grad_inputs
        return has_gradient and not any(change.tracked for change in mutation.metadata_mutations)

    def detach_leaves(self, of_inputs: Sequence[InputMutation]) -> None:
        """Appends what gives the graph leaves of its own, of inputs whose metadata or memory changes."""
        slots = set(self.signature.graph_slots)
        for mutation in of_inputs:
            if mutation.metadata_mutations or mutation.assigned_data is not None:
                for slot in slots.intersection(self.signature.index_map.flat_of(mutation.input)):
                    before, self.leaves[slot] = self.leaves[slot], self.source.fresh("leaf")
                    self.source.line(
                        f"{self.leaves[slot]} = {before}.detach()"
                        "  # the saved tensor keeps its sizes from before the mutation"
                    )

    def reshape(self, mutations: Sequence[InputMutation], is_counted: bool = True) -> None:
        """Appends what does to inputs, or to views after these, what the program did to their sizes and strides."""
        for mutation in mutations:
            if mutation.metadata_mutations:
                do = functools.partial(version_counters.reshape, mutation.metadata_mutations, is_counted=is_counted)
                self.source.line(f"{self.source.const(do, 'reshape')}({self.values[mutation.input]})")

    def copy_new_values(self, of_inputs: Sequence[InputMutation], made: Mapping[OutputDescriptor, str]) -> None:
        """Appends the writes that autograd sees."""
        for mutation in of_inputs:
            if mutation.new_value is None:
                continue
            value = self.values[mutation.input]
            if mutation.shares_version_counter:
                self.source.line(f"{self.source.const(version_counters.undo_bump, 'undo_bump')}({value})")
            self.source.line(f"{value}.copy_({made[AutogradMutation(self.signature.inputs[mutation.input].desc)]})")

    def run(self) -> Made:
        """Appends what runs the forward graph where autograd sees nothing of it."""
        source, convention = self.source, self.convention
        written = source.fresh("written")
        if self.mutations.moves_versions:
            source.line(f"{written} = {self.counters()}")
        inputs = f"[{self.listing(graph_inputs(source, convention, self.leaves))}]"
        # Of leaves that have gradients, the results have none.
        no_grad = bool(convention.requires_grad_inputs) and (self.signature.grad_modes[0] or convention.runs_first)
        no_grad |= self.signature.grad_modes[0] and any(given.inner_requires_grad for given in self.signature.inputs)
        with source.block(f"with {source.const(torch.no_grad, 'no_grad')}():") if no_grad else nullcontext():
            return emit_forward(source, convention, self.graph, self.leaves, inputs, written)

    def apply(self, function: Function) -> tuple[dict[OutputDescriptor, str], dict[OutputDescriptor, str]]:
        """Appends what runs forward by way of autograd.

        Returns:
            The locals of the values that it made, and of numbers, by what they are.
        """
        source, through = self.source, dict.fromkeys(self.signature.through_autograd)
        made = {desc: source.fresh(f"made_{i}") for i, desc in enumerate(self.signature.forward_values)}
        symints = {desc: source.fresh(str(desc)) for desc in self.convention.symints}
        beside = source.fresh("non_differentiable")
        source.line(f"{beside} = []")
        given = {"non_differentiable": beside}
        if self.mutations.moves_versions:
            given["written"] = self.counters()
        self.emit_apply(function, given, made, [])
        others = [name for desc, name in made.items() if desc not in through] + list(symints.values())
        if others:
            source.line(f"({''.join(f'{name}, ' for name in others)}) = {beside}")
        return made, symints

    def apply_after(self, function: Function, ran: Made, results: Results | None = None) -> None:
        """Appends the call that registers with autograd what a graph has computed.

        Args:
            function: What is called.
            ran: What the graph has computed.
            results: The results, where it is called after them: among them are made leaves that have a gradient.
        """
        first, leaves = len(self.signature.inputs), []
        if results is not None:
            wanted = [i - first for i in function.convention.requires_grad_inputs if i >= first]
            leaves = [results.of(self.signature.made_leaves[i]) for i in wanted]
        made = ran.of_part(function.convention)
        self.emit_apply(function, {"made": f"[{self.listing(made.names)}]"}, ran.values, leaves)

    def emit_apply(
        self,
        function: Function,
        given: dict[str, str],
        made: Mapping[OutputDescriptor, str],
        leaves: Sequence[str],
    ) -> None:
        """Appends the call of the `autograd.Function`.

        Args:
            function: What is called.
            given: Expressions for some of `convention.parameters`; the others are the same everywhere.
            made: The locals of what forward makes. Autograd gives those that it sees.
            leaves: The locals of made leaves that have a gradient.
        """
        source, convention, values = self.source, function.convention, self.values
        signature = convention.signature
        leaves_read = self.leaves[: len(signature.index_map.slots)]
        given["leaves"] = f"[{self.listing(leaves_read)}]" if convention.reads_leaves else "[]"
        if convention.keeps_objects:
            source.line("for_backward = []  # objects that backward changes")
            given["objects"] = "for_backward"
        given["checked"] = f"[{', '.join(values[i] for i in convention.saved_for_version_check)}]"
        if function.double_backward is not None:
            inputs = self.listing(values[: len(signature.inputs)])
            given["kept"] = f"{source.const(function.double_backward.keep, 'keep')}([{inputs}])"
        arguments = [given[name] for name in convention.parameters]
        arguments += [values[i] for i in convention.requires_grad_inputs if i < len(signature.inputs)]
        through = "".join(f"{made[desc]}, " for desc in signature.through_autograd)
        source.line(f"({through}) = {source.const(function.apply, 'run')}({', '.join([*arguments, *leaves])})")

    def counters(self) -> str:
        """Returns an expression of the version counters to set: of leaves that the graph writes without a version of
        their own moving, and of tensors whose version moves.
        """
        slots = (slot for slot in self.signature.index_map.slots if slot.kind == "leaf")
        slot_of = {(slot.outer, "".join(slot.path)): slot.flat for slot in slots}
        bumps = [(mutation.input, path) for mutation in self.mutations.of_inputs for path in mutation.version_bumps]
        moved = {slot_of.get(where) for where in bumps}
        silent = [self.leaves[slot] for slot in self.mutations.in_graph if slot not in moved]
        counted = [
            self.leaves[slot_of[where]] if where[1] and where in slot_of else self.values[where[0]] + where[1]
            for where in bumps
        ]
        repeated = [self.values[m.input] for m in self.mutations.of_inputs for _ in m.metadata_mutations]
        repeated += [self.values[m.input] for m in self.mutations.of_inputs if m.shares_version_counter]
        counted = [name for name in counted if name not in repeated] + repeated
        find = self.source.const(version_counters.counters, "counters")
        return f"{find}([{', '.join(silent)}], [{', '.join(counted)}])"
