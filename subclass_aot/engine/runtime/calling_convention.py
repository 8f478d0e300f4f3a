"""The calling convention between the generated `call`, `forward` and `backward`: which values are outputs of the
`autograd.Function`, and which bypass it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch

from subclass_aot.base.codegen import Source
from subclass_aot.engine.compilers import BoxedFunction
from subclass_aot.engine.descriptors import Number, OutputDescriptor
from subclass_aot.engine.outputs import ComputedSymints, InputLeaf, Value
from subclass_aot.engine.runtime.graphs import Graphs
from subclass_aot.engine.signature import JointSignature, MadeLeaf
from subclass_aot.engine.structures import structure_slots
from subclass_aot.errors import CompilerResultError
from subclass_aot.kit.flatten import PlainTensorMeta, SubclassCreationMeta
from subclass_aot.meta.symbols import is_symbolic, lasting_key_of

_WRONG_COUNT = """The function that the {which} compiler returned gave {got} outputs; its graph has {expected}.
  Instead: return every output of the graph, in order, in one sequence."""


class Convention:
    """The calling convention between the generated functions: parameter names, and which outputs go through autograd.

    Args:
        signature: The signature.
        graphs: Its graphs.
        keeps_inputs: Whether autograd is led to the inputs as well, for second derivatives.
        requires_grad_inputs: What `requires_grad_inputs` is, where another backward of the same forward has said so.
        keeps_objects: What `keeps_objects` is, where another backward has said so.

    Attributes:
        symints: Symbolic numbers that forward computes and the call needs. They go in `non_differentiable`, too.
        requires_grad_inputs: The positions of inputs that want a gradient; made leaves count after the inputs.
        structure: Flat slots that gradients of jagged tensors are made with. See Note [Jagged tensors].
        checked: Wrappers whose leaves are saved: an input by its position, or what forward makes by its descriptor.
            See Note [Versions of wrappers].
        keeps_objects: Whether the call keeps objects for backward. See Note [Outcome of backward].
    """

    def __init__(
        self,
        signature: JointSignature,
        graphs: Graphs,
        keeps_inputs: bool,
        requires_grad_inputs: list[int] | None = None,
        keeps_objects: bool | None = None,
    ) -> None:
        self.signature = signature
        self.graphs = graphs
        self.keeps_inputs = keeps_inputs
        self.keeps_objects = signature.backward_outcome is not None if keeps_objects is None else keeps_objects
        returned = {part for o in signature.outputs if isinstance(o, ComputedSymints) for part in o.parts}
        self.symints = [desc for desc in graphs.computed if desc in returned or isinstance(desc, Number)]
        asking = [i for i, given in enumerate(signature.inputs) if given.requires_grad]
        # Autograd goes through the history of every input that it is given, even where nothing comes from here. Some
        # histories are used up, such as that of the last loss, which an object holds.
        with_gradient = [i for i in asking if signature.inputs[i].gradient is not None]
        if keeps_inputs or not with_gradient:  # second derivatives are computed of all of them
            with_gradient = asking
        leaves = enumerate(signature.made_leaves, len(signature.inputs))
        with_gradient = with_gradient + [i for i, leaf in leaves if leaf.gradient is not None]
        self.requires_grad_inputs = with_gradient if requires_grad_inputs is None else requires_grad_inputs
        self.structure = self._structure_of_gradients() if signature.needs_backward else []
        self.checked = self._wrappers_to_check() + self._assigned_to_check() if graphs.saved else []

    @property
    def runs_first(self) -> bool:
        """Whether the graph runs before the `autograd.Function` is applied, since there are several, or in the end."""
        return self.applies_last or bool(self.signature.parts) or self.signature.ends is not None

    @property
    def applies_last(self) -> bool:
        """Whether the `autograd.Function` is applied when the results are there.

        See Note [Made leaves]. An input that gets other memory has gradients of its new size and dtype, too, which
        autograd reads of it when the function is applied.
        """
        assigned = self.signature.mutations.assigned_data
        return any(i >= len(self.signature.inputs) or i in assigned for i in self.requires_grad_inputs)

    @property
    def computed(self) -> list[OutputDescriptor]:
        """Those outputs of the graph that forward gives to the call, or that it gets where it is that of a part."""
        if self.signature.ends is None:
            return list(self.graphs.computed)
        saved = {saved.output for saved in self.graphs.saved if saved.input is None}
        return [desc for desc in self.graphs.computed if desc in saved or desc in self.symints]

    @property
    def values(self) -> list[OutputDescriptor]:
        """Those of `JointSignature.forward_values` that forward makes, or that it gets where it is that of a part."""
        if self.signature.ends is None:
            return list(self.signature.forward_values)
        read = {*self.signature.through_autograd, *self.checked}
        return [desc for desc in self.signature.forward_values if desc in read]

    @property
    def reads_leaves(self) -> bool:
        """Whether forward reads leaves of the call: that of a part does so for structure alone."""
        return self.signature.ends is None or bool(self.structure)

    @property
    def gives_new_tensors(self) -> bool:
        """Whether forward gives autograd new tensors alone, and keeps none but those that it saves.

        `autograd.Function` has to tell what else there is; a node of the accelerator need not.
        """
        keeps = self.keeps_inputs or self.keeps_objects
        if self.applies_last or keeps or self.signature.mutations.in_backward:
            return False
        given = (self.signature.forward_values[desc] for desc in self.signature.through_autograd)
        leaves = (leaf for value in given if isinstance(value.meta, PlainTensorMeta) for leaf in value.leaves)
        return not any(isinstance(leaf, InputLeaf) for leaf in leaves)

    @property
    def saved_for_version_check(self) -> list[int]:
        """Inputs without grad that are saved only for autograd's version check."""
        asking = set(self.requires_grad_inputs)
        return [of for of in self.checked if isinstance(of, int) and of not in asking]

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters of forward that get no gradient: all but the tensors, which come last.

        `made` is what the graph has computed, where it runs first.
        """
        written = ["written"] * self.signature.mutations.moves_versions
        beside = ["made"] if self.runs_first else ["non_differentiable", *written]
        objects = ["objects"] * self.keeps_objects
        return ["leaves", *beside, "checked", *objects, *["kept"] * self.keeps_inputs]

    def _structure_of_gradients(self) -> list[int]:
        metas, index_map = [given.meta for given in self.signature.inputs], self.signature.index_map
        wanted = range(len(metas)) if self.runs_first else self.requires_grad_inputs
        flat = set(index_map.to_flat(wanted))
        return [s for s in structure_slots(metas, index_map) if s in flat]

    def _wrappers_to_check(self) -> list[int | OutputDescriptor]:
        """Returns the wrappers whose leaves are saved: inputs, outputs through which gradients go, and made leaves.

        Note [Versions of wrappers]
        A write through a wrapper counts on the wrapper's version, not on its leaves': they are written below autograd.
        What is saved is a leaf, so the wrapper is saved beside it, and autograd's check sees writes through either.
        """
        signature, graphs = self.signature, self.graphs
        found: list[int | OutputDescriptor] = []
        slots = {signature.graph_slots[p] for p, _ in graphs.saved if p is not None and p < len(signature.graph_slots)}
        for i in sorted({signature.index_map.slots[slot].outer for slot in slots}):
            if isinstance(signature.inputs[i].meta, SubclassCreationMeta):
                found.append(i)
        outputs = {saved.output for saved in graphs.saved} - {None}
        for desc in signature.differentiable:
            value = signature.forward_values[desc]
            if isinstance(value.meta, SubclassCreationMeta) and not outputs.isdisjoint(computed_leaves(value)):
                found.append(desc)
        for i in self.requires_grad_inputs:
            leaf = signature.gradient_targets[i]
            if isinstance(leaf, MadeLeaf) and isinstance(leaf.meta, SubclassCreationMeta) and graphs.saved:
                output = signature.output_of(leaf)  # of a view, what is saved may be a view of its base, too
                sources = output.leaves if isinstance(output, Value) else ()
                if not sources or any(x in outputs or getattr(x, "slot", None) in slots for x in sources):
                    found.append(i)
        return found

    def _assigned_to_check(self) -> list[int | OutputDescriptor]:
        """Returns inputs that get memory which is saved: a write through one counts on its own version alone."""
        found: list[int | OutputDescriptor] = []
        outputs = {saved.output for saved in self.graphs.saved} - {None}
        for position, result in self.signature.mutations.assigned_data.items():
            value = self.signature.outputs[result]
            for leaf in computed_leaves(value) if isinstance(value, Value) and outputs else ():
                if leaf in outputs or self.graphs.computed[leaf].is_alias:
                    found.append(position)
        return found


def computed_leaves(value: Value) -> list[OutputDescriptor]:
    """Returns the leaves of a value that forward computes."""
    return [leaf for leaf in value.leaves if isinstance(leaf, OutputDescriptor)]


class SymintNames:
    """Sizes and strides as text, where some are symbolic and a local of the generated function holds the number.

    Args:
        names: The local for each symbolic number, by its lasting key.
    """

    def __init__(self, names: Mapping[Any, str]) -> None:
        self.names = names

    @staticmethod
    def of(locals_of: Mapping[OutputDescriptor, str]) -> SymintNames:
        """Returns the numbers among what forward computes."""
        return SymintNames({desc.number: name for desc, name in locals_of.items() if isinstance(desc, Number)})

    def one(self, number: int | torch.SymInt) -> str:
        """Returns one of them."""
        return self.names[lasting_key_of(number)] if is_symbolic(number) else str(operator.index(number))

    def all(self, symints: Sequence[int | torch.SymInt]) -> str:
        """Returns a tuple of them."""
        return f"({''.join(self.one(n) + ', ' for n in symints)})"


def emit_run(source: Source, names: Sequence[str], function: BoxedFunction, inputs: str, which: str) -> None:
    """Appends what runs a compiled graph, and gives names to what it returns.

    Args:
        source: Where to write.
        names: New locals, one for each output.
        function: The compiled graph.
        inputs: An expression of a list that the graph may empty.
        which: "forward" or "backward".
    """
    run = source.const(function, f"{which}_graph")
    outputs = source.fresh("outputs")
    source.line(f"{outputs} = {run}({inputs})")
    with source.block("try:"):
        source.line(f"({''.join(n + ', ' for n in names)}) = {outputs}")
    with source.block("except (TypeError, ValueError):"):
        source.line(f"{source.const(_wrong_count, 'wrong_count')}({outputs}, {len(names)}, {which!r})")


def _wrong_count(outputs: object, expected: int, which: str) -> NoReturn:
    got = str(len(outputs)) if hasattr(outputs, "__len__") else f"a {type(outputs).__name__} instead of a sequence of"
    raise CompilerResultError(_WRONG_COUNT.format(which=which, got=got, expected=expected))
