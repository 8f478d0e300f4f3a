"""The tensors of a call as a trace sees them: placeholders for their leaves, and traced fakes made of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.aliasing import overlapping_slots, versions
from subclass_aot.call import ArgumentPlace, Arguments, HeldPlace, Place, static_values
from subclass_aot.descriptors import (
    BufferInput,
    HeldInput,
    InputDescriptor,
    ParamInput,
    PlainInput,
    ViewBase,
)
from subclass_aot.errors import TraceError
from subclass_aot.flatten import FlattenPlan, ValueMeta
from subclass_aot.graph import GRADIENT, Recorder, messages
from subclass_aot.jagged import structure_slots
from subclass_aot.meta import MetaTensor, Spec, is_over, new_leaf
from subclass_aot.outputs import Value
from subclass_aot.signature import Input
from subclass_aot.sizes import DynamicSizes, plan_of_fakes, symbolic_fakes
from subclass_aot.symbols import SizesMustBeKnown, Symbols, is_symbolic
from subclass_aot.trace.input_views import TracedViews
from subclass_aot.trace.outputs import part_of


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """What was true of a traced input before the function ran."""

    requires_grad: bool
    grad: torch.Tensor | None
    grad_fn: Any
    versions: dict[str, int]

    @staticmethod
    def of(traced: torch.Tensor, meta: ValueMeta) -> Before:
        """Reads it."""
        grad = traced.grad if traced.is_leaf else None
        return Before(traced.requires_grad, grad, traced.grad_fn, versions(traced, meta))


class TracedInputs:
    """Placeholders for the leaves of a call, and fakes of its tensors that are made of them.

    Args:
        arguments: The call.
        recorder: Gets the placeholders.
        dynamic: Which sizes are symbols; None if every number must be known, those that depend on data too.
        inference: Whether autograd is to see nothing of them.

    Attributes:
        symbols: The symbols of the trace, if it has some.
        plan: How the tensors are taken apart.
        descs: What each of them is.
        paths: What each of them is called.
        real_leaves: The caller's leaves, by flat slot.
        real_values: The same, and sizes, by graph input.
        graph_slots: The flat slots that are graph inputs: all but opaque inner values.
        structure: The flat slots that hold the structure of jagged tensors.
        leaves: What the trace has in each flat slot: a leaf, a symbolic number or an opaque value.
        specs: The same with the spec of each leaf, as it was when the trace began.
        autograd_leaves: Fakes at which the graph of autograd begins.
        traced: Fakes that the function is given: those of `autograd_leaves`, behind one more node for a non-leaf.
        views: Fakes of inputs that are views of others. See Note [Views of one tensor].
        before: What was true of `traced` then.
    """

    def __init__(self, arguments: Arguments, recorder: Recorder, dynamic: DynamicSizes | None, inference: bool) -> None:
        self.arguments = arguments
        self.paths = [arguments.path_of(i) for i in range(len(arguments.values))]
        self.descs = [_describe(arguments, i) for i in range(len(arguments.values))]
        self.symbols = None if dynamic is None else Symbols()
        if self.symbols is None or dynamic is None:
            self.plan = arguments.plan
            self._patterns = self.plan.unwrap(arguments.values)
        else:
            fakes = symbolic_fakes(arguments, dynamic, self.symbols)
            self.plan = plan_of_fakes(fakes, arguments)
            self._patterns = self.plan.unwrap(fakes)
        self.real_leaves = self.plan.unwrap(arguments.values)
        self.graph_slots = tuple(i for i, x in enumerate(self._patterns) if is_graph_value(x))
        self.structure = structure_slots(self.plan.metas, self.plan.index_map)
        self._inference = inference
        self._static = static_values(arguments)
        self._are_leaves = [real.is_leaf for real in arguments.values]
        self._recorder = recorder

    def make(self) -> None:
        """Makes placeholders and fakes. The recorder must be listening."""
        recorder = self._recorder
        self.leaves: list[Any] = list(self._patterns)
        self.real_values: dict[Any, Any] = {}
        for number, slot in enumerate(self.graph_slots, 1):
            pattern, real = self._patterns[slot], self.real_leaves[slot]
            if is_over(real):
                raise TraceError(messages.OVER.format(path=self.desc_of(slot)))
            if is_symbolic(pattern):
                node = recorder.symint_placeholder(f"primals_{number}", pattern, self.desc_of(slot))
                self.real_values[node] = real
                continue
            spec = pattern.spec if isinstance(pattern, MetaTensor) else Spec.of(pattern)
            leaf = recorder.placeholder(f"primals_{number}", spec, self.desc_of(slot))
            if not isinstance(real, MetaTensor):
                recorder.listeners.real_tensors.stand_in(real, leaf)
            self.leaves[slot] = leaf
            self.real_values[leaf.tag] = real
        for cluster in overlapping_slots(self.real_leaves):
            recorder.listeners.argument_overlap.of_inputs.update((id(self.leaves[slot]), cluster) for slot in cluster)
        for slot in self.structure:  # see Note [Jagged tensors]
            first = next(s for s in self.structure if self.real_leaves[s] is self.real_leaves[slot])
            self.leaves[slot] = self.leaves[first]
            outer = self.plan.index_map.slots[slot].outer
            recorder.listeners.real_tensors.let_read(self.leaves[slot], self.real_leaves[slot], self.paths[outer], slot)
        self.specs = [x.spec if isinstance(x, MetaTensor) else x for x in self.leaves]
        self.autograd_leaves = list(self.plan.wrap(self.leaves))
        for outer in {self.plan.index_map.slots[slot].outer for slot in self.structure}:
            jagged = self.autograd_leaves[outer]
            values, offsets = _torch.parts_of_jagged(jagged)
            offsets.total = values.shape[_torch.ragged_dim_of(jagged) - 1]
        self.traced = list(self.autograd_leaves)
        fresh: Sequence[Any] = ()
        for i, real in enumerate(self.arguments.values):
            if isinstance(real, torch.nn.Parameter):
                _torch.mark_as_parameter(self.autograd_leaves[i])
            if self._inference or not real.requires_grad:
                continue
            self.autograd_leaves[i].requires_grad_()
            if real.is_leaf and real.grad is not None:
                self.autograd_leaves[i].grad = _no_input(real.grad)
            if not real.is_leaf:
                fakes = [_fake(x) if self.is_dense(s) else x for s, x in enumerate(self.leaves)]
                fresh = fresh or self.plan.wrap(fakes)
                with torch.enable_grad():
                    self.traced[i] = _NonLeaf.apply(self.autograd_leaves[i], [fresh[i]])  # type: ignore[no-untyped-call]
        self.views = TracedViews(self.arguments, self.traced, recorder)
        self.before = [Before.of(t, m) for t, m in zip(self.traced, self.plan.metas, strict=True)]

    def forget_call(self) -> None:
        """Lets go of everything of the caller's."""
        del self.arguments, self.real_leaves, self.real_values, self._patterns

    @property
    def requires_grad_inputs(self) -> list[int]:
        """The positions of inputs that want a gradient."""
        return [i for i, t in enumerate(self.autograd_leaves) if t.requires_grad]

    def described(self, gradients: Mapping[int, Gradient]) -> tuple[Input, ...]:
        """The inputs as the signature has them, with the gradients that some have, by their positions."""
        found = []
        for i, is_leaf in enumerate(self._are_leaves):
            specs = tuple(self.specs[s] for s in self.plan.index_map.flat_of(i))
            grad = self.autograd_leaves[i].requires_grad
            value, reach = gradients.get(i, (None, ()))
            static = i in self._static
            found.append(Input(self.descs[i], self.plan.metas[i], specs, grad, is_leaf, static, value, reach))
        return tuple(found)

    def need_known_sizes(self, inputs: Iterable[int]) -> None:
        """Where views of one storage overlap, and where an input is turned, sizes are part of the graph.

        Args:
            inputs: Positions of such inputs.

        Raises:
            SizesMustBeKnown: One of them has symbolic sizes.
        """
        flat_of = self.plan.index_map.flat_of
        symbolic = {i for i in inputs if any(_has_symbols(self._patterns[s]) for s in flat_of(i))}
        if symbolic:
            raise SizesMustBeKnown([self.paths[i] for i in symbolic])

    def is_among(self, slot: int, leaves: set[MetaTensor]) -> bool:
        """Whether a flat slot holds one of some leaves."""
        leaf = self.leaves[slot]
        return isinstance(leaf, MetaTensor) and leaf in leaves

    def is_dense(self, slot: int) -> bool:
        """Whether a flat slot is a tensor of the call, and not an inner one."""
        found = self.plan.index_map.slots[slot]
        return found.kind == "leaf" and not found.path

    def desc_of(self, slot: int) -> InputDescriptor:
        """What a flat slot is, as `self.head.weight.codes`."""
        found = self.plan.index_map.slots[slot]
        desc: InputDescriptor = part_of(self.descs[found.outer], found)
        return desc


def is_graph_value(leaf: Any) -> bool:
    """Whether a flat slot holds what a graph computes with. An opaque inner value is a constant of the signature."""
    return isinstance(leaf, torch.Tensor) or is_symbolic(leaf)


Gradient = tuple[Value, tuple[int, ...]]
"""How a gradient is made of what backward computes, and the positions of the tangents that it comes from."""


def _describe(arguments: Arguments, position: int) -> InputDescriptor:
    """What one of the tensors of a call is, by the first place where it stands."""
    if position not in arguments.value_at:  # only views of it are passed
        view = len(arguments.values) + arguments.view_of.index(position)
        return ViewBase(_describe_place(arguments.places[arguments.value_at.index(view)]))
    return _describe_place(arguments.places[arguments.value_at.index(position)])


def _describe_place(place: Place) -> InputDescriptor:
    if isinstance(place, ArgumentPlace):
        return PlainInput(place.path, place.leaf)
    if isinstance(place, HeldPlace):
        return HeldInput(place.path, place.number)
    target = place.path.partition(".")[2]
    return ParamInput(place.path, target) if place.table == _torch.PARAMETERS else BufferInput(place.path, target)


class _NonLeaf(torch.autograd.Function):
    """Makes a traced input a non-leaf of autograd's graph, as the caller's is: in-place operators are allowed on it."""

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, box: list[torch.Tensor]) -> torch.Tensor:
        return box[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def _no_input(gradient: torch.Tensor) -> Any:
    """What stands for a `.grad`: it is there, but no input of the graph, so whatever reads it is refused."""
    with _torch.disable_current_modes():
        fake = MetaTensor.like(gradient)
        for leaf in FlattenPlan.read([fake])[1]:
            if isinstance(leaf, MetaTensor):
                leaf.tag = GRADIENT
        return fake


def _fake(leaf: Any) -> Any:
    """Another leaf for the same graph input."""
    if not isinstance(leaf, MetaTensor):
        return leaf
    fake = new_leaf(leaf.spec)
    fake.base, fake.tag = leaf, leaf.tag
    return fake


def _has_symbols(pattern: Any) -> bool:
    return is_symbolic(pattern) or isinstance(pattern, MetaTensor) and pattern.spec.solver is not None
