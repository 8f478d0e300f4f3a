"""A program taken apart: a forward that keeps what its backward reads, and that backward.

Note [Residuals]
~~~~~~~~~~~~~~~~
A gradient is a program of values and of the gradients of results, and computes forward again: so it can be transformed
in turn, as often as one likes. What it computes first, the forward of the call has computed, too, and could have kept:
these are residuals. That is a way to compute a gradient, and no other gradient. So transforms never see a residual:
torch takes a call and its gradient through the levels as ever, and at the lowest, where there are plain tensors,
forward leaves its residuals in `Kept`, for a backward of the same call that came down through the same `vmap`s. A
gradient of this gradient is that of the program, which computes everything again.

Two graphs do that: the joint graph of the program, split. They are functions of tensors, and compiled for each `vmap`
around them. There the strides of the trace do not hold, so views are `reshape`, and a graph that reads strides is not
used. Nor is any where autocast is on: eager mode casts in a backward that runs there, and graphs have what forward
cast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot._stack import pass_on_interruption
from subclass_aot.call import Arguments
from subclass_aot.descriptors import descriptor_of
from subclass_aot.flatten import FlattenPlan, PlainTensorMeta, ValueMeta
from subclass_aot.options import Options
from subclass_aot.outputs import Value
from subclass_aot.passes import take_any_strides
from subclass_aot.runtime import Graphs, split
from subclass_aot.signature import JointSignature
from subclass_aot.trace import one_at_a_time, trace_arguments
from subclass_aot.transforms.pure import is_pure

Run = Callable[..., tuple[torch.Tensor, ...]]
"""A function of a list of tensors that no transform reaches, and of the others one by one."""

_aten = torch.ops.aten
_READ_STRIDES = (
    _aten.as_strided.default, _aten.as_strided_copy.default, _aten.as_strided_scatter.default,
    _aten._reshape_alias.default, _aten.view.dtype,
)  # fmt: skip
_WROTE = (_aten.copy.default, _aten.fill.Scalar, _aten.fill.Tensor)
"""What writes become in a graph, and `vmap` runs one by one."""


@dataclass(frozen=True, slots=True)
class Place:
    """A leaf: of which tensor, and which of its leaves."""

    tensor: int
    leaf: int = 0

    def of(self, tensors: Sequence[Any]) -> torch.Tensor:
        """The leaf."""
        tensor: torch.Tensor = tensors[self.tensor]
        if not _torch.is_traceable_wrapper_subclass(tensor):
            return tensor
        leaf: torch.Tensor = FlattenPlan.leaves_of(tensor)[self.leaf]
        return leaf


@dataclass(frozen=True, slots=True, eq=False)
class Half:
    """A graph as a function of tensors that no transform reaches, and of others.

    Attributes:
        graph: The graph.
        inputs: Its inputs; None for one that it does not use.
        outputs: Which of its outputs are results; zeros like a tensor are there for what has no gradient.
    """

    graph: fx.GraphModule
    inputs: tuple[Place | None, ...]
    outputs: tuple[int | Place, ...]

    def __call__(self, rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Runs the operators."""
        tensors = [*rest, *values]
        found = self.graph(*(None if place is None else place.of(tensors) for place in self.inputs))
        return tuple(torch.zeros_like(x.of(tensors)) if isinstance(x, Place) else found[x] for x in self.outputs)


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """Reads leaves of tensors that no transform reaches.

    Attributes:
        tensors: Of which tensors.
        unwrap: Gives the leaves of these.
        leaves: Which of their leaves.
    """

    tensors: tuple[int, ...]
    unwrap: Callable[[list[Any]], list[Any]]
    leaves: tuple[int, ...]

    @staticmethod
    def of(places: Sequence[Place], metas: Sequence[ValueMeta]) -> Reads:
        """Reads leaves of tensors that are made in these ways."""
        plan = FlattenPlan(tuple(metas))
        tensors = tuple(dict.fromkeys(place.tensor for place in places))
        leaves = (plan.index_map.flat_of(tensors.index(place.tensor))[place.leaf] for place in places)
        return Reads(tensors, plan.unwrap, tuple(leaves))

    def __call__(self, rest: list[Any]) -> list[torch.Tensor]:
        """The leaves."""
        found = self.unwrap([rest[i] for i in self.tensors])
        return [found[i] for i in self.leaves]


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """The two halves of a program.

    Attributes:
        forward: Of values: the results, and after them the residuals.
        backward: Of what `read` gives; of values, the gradients of all results that have one, and the residuals: the
            gradients of values.
        read: What it reads of the tensors that no transform reaches, as they are when forward runs.
        wanted: Of which values.
        given: Which results have a gradient.
        reads: Of which values each residual is made.
    """

    forward: Half
    backward: Half
    read: Reads
    wanted: tuple[bool, ...]
    given: tuple[bool, ...]
    reads: tuple[frozenset[int], ...]


Halve = Callable[[Run, list[Any], Sequence[torch.Tensor], tuple[bool, ...]], Halves | None]
"""Halves of a function for tensors as these, with the gradients of those that are wanted; None where there are none."""


def halves_of(
    options: Options, run: Run, rest: list[Any], values: Sequence[torch.Tensor], wanted: tuple[bool, ...]
) -> Halves | None:
    """Traces a program, forward and backward, and takes it apart.

    Args:
        options: What to trace with.
        run: The program.
        rest: Tensors that no transform reaches.
        values: Tensors that look like the others; of any values.
        wanted: Of which of these backward computes gradients.

    Returns:
        None for a program that cannot be taken apart.
    """
    with one_at_a_time, _torch.without_transforms(), torch.enable_grad():
        values = [x.detach().requires_grad_(w) for x, w in zip(values, wanted, strict=True)]
        try:
            arguments = Arguments.of(run, (rest, *values), {})
            trace = trace_arguments(run, arguments, options.replaced, None)
            if not trace.signature.needs_backward:
                return None
            graphs = split(trace, options.partition_fn, options.backward.fuses)
        except Exception as error:  # then the gradient computes forward again, and says what is wrong
            pass_on_interruption(error)
            return None
    places = _places(arguments, trace.signature, [*rest, *values])
    if not is_pure(trace.signature, graphs.forward) or not _has_plain_gradients(trace.signature):
        return None
    assert graphs.backward is not None
    both = graphs.forward, graphs.backward
    if graphs.num_saved_symints or any(map(_reads_strides, both)):
        return None
    for graph in both:
        take_any_strides(graph)
    return _joined(trace.signature, graphs, places, len(rest), wanted)


def _places(arguments: Arguments, signature: JointSignature, tensors: Sequence[Any]) -> list[Place | None]:
    """Where each input of the forward graph comes from; None for one that is no argument."""
    position = {id(x): i for i, x in enumerate(tensors)}
    found: list[Place | None] = []
    for slot in signature.graph_slots:
        outer = signature.index_map.slots[slot].outer
        at = position.get(id(arguments.values[outer]))
        first = signature.index_map.flat_of(outer)[0]
        found.append(None if at is None else Place(at, slot - first))
    return found


def _has_plain_gradients(signature: JointSignature) -> bool:
    wanted = [x.gradient for x in signature.inputs if x.requires_grad and x.gradient is not None]
    kinds = [*(x.meta for x in wanted), *(x.meta for x in signature.tangents)]
    failing = any(tangent.error is not None for tangent in signature.tangents)
    return not failing and all(isinstance(meta, PlainTensorMeta) for meta in kinds)


def _reads_strides(graph: fx.GraphModule) -> bool:
    """Whether a graph is none for a `vmap`, also if its views take any strides."""
    return any(node.target in (*_READ_STRIDES, *_WROTE) for node in graph.graph.nodes)


def _joined(
    signature: JointSignature, graphs: Graphs, places: Sequence[Place | None], num_rest: int, wanted: tuple[bool, ...]
) -> Halves | None:
    """Functions of the graphs.

    Args:
        signature: The signature of the program.
        graphs: Its graphs.
        places: Where each input of the forward graph comes from.
        num_rest: How many tensors no transform reaches.
        wanted: Of which of the others there are gradients.
    """
    forward, backward = graphs.forward, graphs.backward
    assert backward is not None
    inputs = forward.graph.find_nodes(op="placeholder")
    if any(place is None and node.users for place, node in zip(places, inputs, strict=True)):
        return None  # it comes from elsewhere
    position = {desc: i for i, desc in enumerate(graphs.computed)}
    results = [position[output.leaves[0]] for output in signature.outputs if isinstance(output, Value)]
    given = tuple(isinstance(output, Value) and output.requires_grad for output in signature.outputs)
    kept = [len(position) + i for i, saved in enumerate(graphs.saved) if saved.input is None]

    saved = [places[x.input] if x.input is not None else None for x in graphs.saved]
    read = tuple(dict.fromkeys(place for place in saved if place is not None and place.tensor < num_rest))
    first = len(read)  # of the values, after which there are the gradients of results, and the residuals
    tangents = range(first + len(wanted), first + len(wanted) + sum(given))
    residuals = iter(range(tangents.stop, tangents.stop + len(kept)))

    def now_at(place: Place | None) -> Place:
        if place is None:
            return Place(next(residuals))
        return Place(read.index(place) if place in read else first + place.tensor - num_rest)

    inputs_of_backward = (*map(now_at, saved), *map(Place, tangents))
    made = {desc: i for i, desc in enumerate(descriptor_of(backward.graph.output_node()))}
    outers = [signature.index_map.slots[slot].outer for slot in signature.graph_slots]
    described = {
        place.tensor: signature.inputs[i] for place, i in zip(places, outers, strict=True) if place is not None
    }
    gradients = {i: described[num_rest + i].gradient for i, is_wanted in enumerate(wanted) if is_wanted}
    of_wanted = (
        Place(first + i) if gradient is None else made[gradient.leaves[0]] for i, gradient in gradients.items()
    )
    reads = _dependences(forward, [None if place is None else place.tensor - num_rest for place in places])
    return Halves(
        Half(forward, tuple(places), (*results, *kept)),
        Half(backward, inputs_of_backward, tuple(of_wanted)),
        Reads.of(read, [described[i].meta for i in dict.fromkeys(place.tensor for place in read)]),
        wanted,
        given,
        tuple(reads[i] for i in kept),
    )


def _dependences(graph: fx.GraphModule, positions: Sequence[int | None]) -> list[frozenset[int]]:
    """For each output of a graph, of which values it is made.

    Args:
        graph: The graph.
        positions: Which value each input is; None, or a number below zero, for one that is none.
    """
    given = iter(positions)
    found: dict[fx.Node, frozenset[int]] = {}
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            at = next(given)
            found[node] = frozenset() if at is None or at < 0 else frozenset([at])
        else:
            found[node] = frozenset().union(*(found[x] for x in node.all_input_nodes))
    outputs: Any = graph.graph.output_node().args[0]
    return [found[x] if isinstance(x, fx.Node) else frozenset() for x in outputs]
