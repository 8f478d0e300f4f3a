"""What the inputs and outputs of a joint graph mean: a frozen value without tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from subclass_aot.call import Base, Outcome
from subclass_aot.flatten import IndexMap, ValueMeta
from subclass_aot.graph import Look
from subclass_aot.symbols import RuntimeAssert, Symbols
from subclass_aot.trace.outputs import Output, Value


@dataclass(frozen=True, slots=True)
class Input:
    """One tensor that a call brings.

    Attributes:
        path: Where the caller finds it, such as `args[0]` or `self.head.weight`.
        meta: How it is made of leaves.
        specs: The spec of each of its leaves; an opaque inner value stands for itself.
        requires_grad: Whether autograd wants a gradient.
        is_leaf: Whether it is a leaf of autograd's graph.
        is_static: Whether its memory stays in place from call to call: a module holds it, or it is marked.
    """

    path: str
    meta: ValueMeta
    specs: tuple[Any, ...]
    requires_grad: bool
    is_leaf: bool
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class JointSignature:
    """What the inputs and outputs of a joint graph mean. Holds no tensor.

    Graph inputs are the tensor leaves of `inputs`, then those of `tangents`. Graph outputs are the new values of
    `mutated_leaves`, the computed leaves of `autograd_mutations`, `outputs` and `intermediate_bases`, then the leaves
    of `gradients`.

    Attributes:
        inputs: The tensors of the call, each once.
        index_map: Which leaf belongs to which input.
        views: Where the caller finds tensors that are views of an input and are no inputs themselves. `SameAsInput`
            and `metadata_mutations` count them after the inputs.
        graph_slots: The flat slots that are graph inputs: all but opaque inner values.
        outputs: What each flattened result is.
        intermediate_bases: Tensors that are no results, and of which several results are views.
        outcome: What is made of the results, and what objects hold after the call.
        mutated_leaves: Flat slots that the graph writes in place at the end of forward.
        bases: Storages that several leaves share and the graph writes: graph inputs of their own, after the leaves,
            with new values of their own, after those of `mutated_leaves`.
        version_bumps: Tensors whose version counter eager moves where the graph writes: the position in `inputs` and
            the path from there, `""` for the input itself, `".codes"` for an inner tensor that is written by its own
            name.
        autograd_mutations: Inputs whose new value autograd must see: the position in `inputs` and the new value. They
            are written by the caller, with `copy_` through the wrapper.
        untouched: Flat slots of `autograd_mutations` inputs that the program itself does not write.
        metadata_mutations: Operators that change what an input looks like from outside: the position in `inputs`, the
            operator, its other arguments, whether autograd sees it. The caller runs them on the input itself, before it
            writes `autograd_mutations`.
        requires_grad_mutations: Inputs that begin to require grad; the call sees to it before it runs the graph.
        num_forward_outputs: How many graph outputs belong to forward.
        num_computed: How many of these are leaves of `autograd_mutations` and `outputs`, or `numbers`.
        numbers: Symbolic numbers that the call needs, by expression: the position among what forward computes.
        looks: Values that the program looked at: the position among what forward computes in place of the leaf, and the
            value. See Note [Looks at values].
        read: Inputs whose values were read while tracing, by flat slot, and these values.
        symbols: The symbols of the trace, or None where every number is known. See Note [Symbolic sizes].
        runtime_asserts: What the program says of `numbers`; the call checks it.
        tangents: For each result through which autograd goes, in graph order: its meta and the specs of its leaves.
            Their metas have slots for symbolic sizes, but the sizes are those of the results.
        gradients: For each input, how its gradient is made of the gradient leaves, or None where it has none.
        reach: For each input, the positions of the tangents that its gradient comes from. Where none of these arrives,
            it has none.
        backward_writes: Flat slots that are written while gradients are computed. Backward reads them as they are
            when it runs: each is one more graph input after the tangents, and its new value one more output at the end.
        grad_modes: Whether autograd is on when the program begins, and when it ends.
    """

    inputs: tuple[Input, ...]
    index_map: IndexMap
    views: tuple[str, ...]
    graph_slots: tuple[int, ...]
    outputs: tuple[Output, ...]
    intermediate_bases: tuple[Value, ...]
    outcome: Outcome
    mutated_leaves: tuple[int, ...]
    bases: tuple[Base, ...]
    version_bumps: tuple[tuple[int, str], ...]
    autograd_mutations: tuple[tuple[int, Value], ...]
    untouched: tuple[int, ...]
    metadata_mutations: tuple[tuple[int, Any, tuple[Any, ...], dict[str, Any], bool], ...]
    requires_grad_mutations: tuple[int, ...]
    num_forward_outputs: int
    num_computed: int
    numbers: Mapping[Any, int]
    looks: tuple[Look, ...]
    read: tuple[tuple[int, Any], ...]
    symbols: Symbols | None
    runtime_asserts: tuple[RuntimeAssert, ...]
    tangents: tuple[tuple[ValueMeta, tuple[Any, ...]], ...]
    gradients: tuple[Value | None, ...]
    reach: tuple[tuple[int, ...], ...]
    backward_writes: tuple[int, ...]
    grad_modes: tuple[bool, bool]

    @property
    def static_input_indices(self) -> tuple[int, ...]:
        """The graph inputs whose memory stays in place: the leaves of static inputs."""
        flat = set(self.index_map.to_flat(i for i, given in enumerate(self.inputs) if given.is_static))
        return tuple(position for position, slot in enumerate(self.graph_slots) if slot in flat)

    @property
    def writes(self) -> bool:
        """True if a call changes one of its inputs."""
        return bool(self.mutated_leaves or self.bases or self.autograd_mutations)

    @property
    def needs_backward(self) -> bool:
        """True if autograd goes through at least one result."""
        return bool(self.tangents)
