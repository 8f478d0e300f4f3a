"""The tensors of a call as a trace sees them: placeholders for their leaves, and traced fakes made of these."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.wrappers import mirrors_requires_grad
from subclass_aot.engine.aliasing import as_non_leaf, overlapping_slots, versions
from subclass_aot.engine.call import ArgumentPlace, Arguments, HeldPlace, Place, static_values
from subclass_aot.engine.descriptors import (
    BufferInput,
    Descriptor,
    HeldInput,
    InputDescriptor,
    ParamInput,
    PlainInput,
    ViewBase,
)
from subclass_aot.engine.graph import GRADIENT, Recorder, messages
from subclass_aot.engine.outputs import Value
from subclass_aot.engine.signature import Input
from subclass_aot.engine.sizes import DynamicSizes, GivenSizes, plan_of_fakes, symbolic_fakes
from subclass_aot.engine.structures import structure_slots, structures_in
from subclass_aot.engine.trace.input_views import TracedViews
from subclass_aot.engine.trace.outputs import part_of
from subclass_aot.errors import TraceError
from subclass_aot.kit.flatten import (
    ContainerMeta,
    FlattenPlan,
    IndexMap,
    InnerMeta,
    PlainTensorMeta,
    SubclassCreationMeta,
    ValueMeta,
)
from subclass_aot.meta import MetaTensor, Spec, Storage, new_leaf, places
from subclass_aot.meta.symbols import SizesMustBeKnown, Symbols, is_symbolic


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """Facts about a traced input before the function ran.

    Attributes:
        requires_grad: Whether it wanted a gradient.
        grad: Its gradient.
        grad_fn: What computed it.
        versions: The versions of it and of its inner tensors.
        in_cpp: Which tensor in C++ it was: `torch.utils.swap_tensors` gives it another.
    """

    requires_grad: bool
    grad: torch.Tensor | None
    grad_fn: Any
    versions: dict[str, int]
    in_cpp: int

    @staticmethod
    def of(traced: torch.Tensor, meta: ValueMeta) -> Before:
        """Reads it."""
        grad = traced.grad if traced.is_leaf else None
        return Before(
            traced.requires_grad, grad, traced.grad_fn, versions(traced, meta), _torch.autograd.in_cpp(traced)
        )


@dataclass(frozen=True, slots=True, eq=False)
class InputPlan:
    """The meaning of the tensors of a call, and how they become graph inputs. Holds none of them.

    Attributes:
        flatten: How they are flattened.
        descs: What each of them is.
        paths: What each of them is called.
        are_leaves: Whether each of them is a leaf of autograd.
        static: The positions of those whose memory stays in place.
        views: What further tensors of the call are called, which are views of these.
        graph_slots: The flat slots that are graph inputs: all but opaque inner values.
        structure: The flat slots that hold the structure of jagged tensors.
        symbols: The symbols of the trace, if it has some.
        inner_requires_grad: The inner tensors that require grad, of classes that do not set that to no effect: each as
            the position of its input, the keys that lead to it, and its flat slot, if it has one.
    """

    flatten: FlattenPlan
    descs: tuple[InputDescriptor, ...]
    paths: tuple[str, ...]
    are_leaves: tuple[bool, ...]
    static: frozenset[int]
    views: tuple[str, ...]
    graph_slots: tuple[int, ...]
    structure: tuple[int, ...]
    symbols: Symbols | None
    inner_requires_grad: tuple[tuple[int, tuple[Any, ...], int | None], ...] = ()

    @property
    def index_map(self) -> IndexMap:
        """Which flat slot belongs to which input."""
        return self.flatten.index_map

    def is_dense(self, slot: int) -> bool:
        """Returns whether a flat slot is a tensor of the call, and not an inner one."""
        found = self.index_map.slots[slot]
        return found.kind == "leaf" and not found.path

    def desc_of(self, slot: int) -> InputDescriptor:
        """Returns the descriptor of a flat slot, such as `self.head.weight.codes`."""
        found = self.index_map.slots[slot]
        desc: InputDescriptor = part_of(self.descs[found.outer], found)
        return desc


@dataclass(frozen=True, slots=True, eq=False)
class UserInputs:
    """The tensors of the call that is traced. Whoever outlives the trace does not hold them.

    Attributes:
        arguments: The call.
        leaves: What its tensors are made of, by flat slot.
        patterns: The same without data and with symbolic sizes, if the trace has some.
    """

    arguments: Arguments
    leaves: Sequence[Any]
    patterns: Sequence[Any]


def plan_inputs(arguments: Arguments, dynamic: DynamicSizes | GivenSizes | None) -> tuple[InputPlan, UserInputs]:
    """Says how the tensors of a call become graph inputs.

    Args:
        arguments: The call.
        dynamic: Which sizes are symbols; None if every number must be known, those that depend on data too.
    """
    flatten, tensors, symbols = arguments.plan, list(arguments.values), None
    if dynamic is not None:
        if isinstance(dynamic, GivenSizes):
            tensors, symbols = dynamic.fakes(arguments)
        else:
            symbols = Symbols()
            tensors = symbolic_fakes(arguments, dynamic, symbols)
        flatten = plan_of_fakes(tensors, arguments)
    patterns = [_torch.plain_subclasses.leaf_of(x) for x in flatten.leaves_of_all(tensors)]
    user = UserInputs(arguments, flatten.leaves_of_all(arguments.values), patterns)
    positions = range(len(arguments.values))
    wrappers = [(i, meta) for i, meta in enumerate(flatten.metas) if isinstance(meta, SubclassCreationMeta)]
    plan = InputPlan(
        flatten,
        _with_unique_names([_describe(arguments, i) for i in positions]),
        tuple(map(arguments.path_of, positions)),
        tuple(value.is_leaf for value in arguments.values),
        static_values(arguments),
        tuple(arguments.paths_of_views),
        tuple(i for i, x in enumerate(user.patterns) if is_graph_value(x)),
        structure_slots(flatten.metas, flatten.index_map) if wrappers else (),
        symbols,
        tuple((i, keys, slot) for i, meta in wrappers for keys, slot in _that_require_grad(arguments.values[i], meta)),
    )
    return plan, user


def _that_require_grad(value: Any, meta: InnerMeta) -> Iterator[tuple[tuple[Any, ...], int | None]]:
    """Yields the inner tensors of a wrapper that require grad: the keys that lead to each, and its flat slot.

    Args:
        value: The wrapper, or a container or another wrapper in it.
        meta: How it is made of leaves.
    """
    if isinstance(meta, SubclassCreationMeta) and mirrors_requires_grad(meta.cls):
        return
    parts = {SubclassCreationMeta: "attrs", ContainerMeta: "items"}.get(type(meta))
    for key, part_meta in {} if parts is None else getattr(meta, parts).items():
        part = _inside(value, (key,))
        if isinstance(part, torch.Tensor) and part.requires_grad:
            yield (key,), part_meta.unwrapped_idx if isinstance(part_meta, PlainTensorMeta) else None
        for keys, slot in _that_require_grad(part, part_meta):
            yield (key, *keys), slot


def _inside(value: Any, keys: Iterable[Any]) -> Any:
    """Returns what some keys lead to: attributes of wrappers, and entries of containers in them."""
    for key in keys:
        value = value[key] if isinstance(value, list | tuple | dict) else getattr(value, key)
    return value


@dataclass(frozen=True, slots=True, eq=False)
class TracedInputs:
    """The tensors of a call as the function sees them: fakes, made of leaves with a placeholder behind each.

    Attributes:
        plan: What they are.
        leaves: What the trace has in each flat slot: a leaf, a symbolic number or an opaque value.
        specs: The same with the spec of each leaf, as it was when the trace began.
        autograd_leaves: Fakes at which the graph of autograd begins.
        traced: Fakes that the function is given: those of `autograd_leaves`, behind one more node for a non-leaf.
        views: Fakes of inputs that are views of others. See Note [Views of one tensor].
        lost: Fakes of inner tensors that require grad in the call. Autograd sees nothing of them.
        before: What was true of `traced` then.
        in_cpp: The `id` of each of `leaves`, and which tensor in C++ it was, if some of them are inner tensors.
        inference: Whether the call is in inference mode, where no input wants a gradient.
    """

    plan: InputPlan
    leaves: list[Any]
    specs: list[Any]
    autograd_leaves: list[Any]
    traced: list[Any]
    views: TracedViews
    lost: list[torch.Tensor]
    before: tuple[Before, ...]
    in_cpp: list[tuple[int, int]]
    inference: bool

    def collections(self) -> list[Collection[Any]]:
        """Returns the collections that hold traced tensors."""
        return [self.leaves, self.autograd_leaves, self.traced, self.views.views, self.views.leaves, self.lost]

    @property
    def seen(self) -> list[Any]:
        """What the function is given in the place of each tensor of the call."""
        return [*self.traced, *self.views.views]

    @property
    def requires_grad_inputs(self) -> list[int]:
        """The positions of inputs that want a gradient."""
        return [i for i, t in enumerate(self.autograd_leaves) if t.requires_grad and not self.inference]

    def described(self, gradients: Mapping[Descriptor, Gradient]) -> tuple[Input, ...]:
        """Returns the inputs as the signature has them, with the gradients that some have, by what they are."""
        plan, found = self.plan, []
        for i, (desc, meta) in enumerate(zip(plan.descs, plan.flatten.metas, strict=True)):
            specs = tuple(self.specs[s] for s in plan.index_map.flat_of(i))
            grad = self.autograd_leaves[i].requires_grad and not self.inference
            value, reach = gradients.get(desc, (None, ()))
            inner = any(outer == i for outer, *_ in plan.inner_requires_grad)
            found.append(Input(desc, meta, specs, grad, plan.are_leaves[i], i in plan.static, value, reach, inner))
        return tuple(found)

    def exchanged_inside(self) -> str | None:
        """Returns what an inner tensor is called that `torch.utils.swap_tensors` gave another tensor in C++, if any."""
        pairs = enumerate(zip(self.in_cpp, _in_cpp(self.leaves), strict=True))
        changed = (slot for slot, (one, other) in pairs if one[0] == other[0] and one[1] != other[1])
        slot = next(changed, None)
        outer = None if slot is None else self.plan.index_map.slots[slot].outer
        return None if outer is None else f"An inner tensor of {self.plan.paths[outer]}"

    def need_known_sizes(self, inputs: Iterable[int]) -> None:
        """Refuses symbolic sizes of inputs that overlap, or of mutated metadata: there sizes are part of the graph.

        Args:
            inputs: Their positions.

        Raises:
            SizesMustBeKnown: One of them has symbolic sizes.
        """
        flat_of = self.plan.index_map.flat_of
        symbolic = {i for i in inputs if any(_has_symbols(self.specs[s]) for s in flat_of(i))}
        if symbolic:
            raise SizesMustBeKnown([self.plan.paths[i] for i in symbolic])

    def is_among(self, slot: int, storages: Container[Storage]) -> bool:
        """Returns whether a flat slot holds a leaf with one of some storages."""
        leaf = self.leaves[slot]
        return isinstance(leaf, MetaTensor) and Storage.of(leaf) in storages


def trace_inputs(plan: InputPlan, user: UserInputs, recorder: Recorder, inference: bool) -> TracedInputs:
    """Makes placeholders for the leaves of a call, and fakes of its tensors. The recorder must be listening.

    Args:
        plan: How.
        user: The call.
        recorder: Gets the placeholders.
        inference: Whether autograd is to see nothing of what is done with them.
    """
    leaves = _placeholders(plan, user, recorder)
    for position in user.arguments.at_numbers:
        recorder.listeners.data_dependent.numbers.add(leaves[plan.index_map.flat_of(position)[0]].meta_tag)
    specs = [x.meta_spec if isinstance(x, MetaTensor) else x for x in leaves]
    for *_, slot in plan.inner_requires_grad:
        if slot is not None:
            leaves[slot].requires_grad_()  # as constructors find them
    wrap = _wrap_of(plan)
    autograd_leaves = list(wrap(leaves))
    _hold(plan, leaves, autograd_leaves)
    for outer, structure in structures_in(plan.flatten.metas).items() if plan.structure else ():
        structure.on_traced(autograd_leaves[outer])
    lost = [_inside(autograd_leaves[outer], keys).requires_grad_() for outer, keys, _ in plan.inner_requires_grad]
    for outer, *_ in plan.inner_requires_grad:  # whose constructor may give it what the inner ones have
        autograd_leaves[outer].requires_grad_(user.arguments.values[outer].requires_grad)
    traced = list(autograd_leaves)
    fresh: Sequence[Any] = ()
    unread: Sequence[Any] = ()
    for i, real in enumerate(user.arguments.values):
        if isinstance(real, torch.nn.Parameter):
            _torch.autograd.mark_as_parameter(autograd_leaves[i])
        if real.requires_grad:
            autograd_leaves[i].requires_grad_()
            if not real.is_leaf and not inference:
                fresh = fresh or wrap([_fake(x) if plan.is_dense(s) else x for s, x in enumerate(leaves)])
                with torch.enable_grad():
                    traced[i] = as_non_leaf(autograd_leaves[i], fresh[i])
        if (real.is_leaf or real.retains_grad) and real.grad is not None:
            has_symbols = any(_has_symbols(specs[s]) for s in plan.index_map.flat_of(i))
            if has_symbols and _alike(real, real.grad):  # the numbers of the gradient would become those of the input
                unread = unread or wrap([_unread(x) if isinstance(x, MetaTensor) else x for x in leaves])
                traced[i].grad = unread[i]
            else:
                traced[i].grad = _no_input(real.grad)
    views = TracedViews(user.arguments, traced, recorder)
    before = tuple(Before.of(t, m) for t, m in zip(traced, plan.flatten.metas, strict=True))
    in_cpp = [] if plan.flatten.is_plain else _in_cpp(leaves)
    return TracedInputs(plan, leaves, specs, autograd_leaves, traced, views, lost, before, in_cpp, inference)


def _in_cpp(leaves: Iterable[object]) -> list[tuple[int, int]]:
    return [(id(x), _torch.autograd.in_cpp(x) if isinstance(x, MetaTensor) else 0) for x in leaves]


def _wrap_of(plan: InputPlan) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Returns the function from leaves, which are made for the plan and are no tensors with data, to values."""
    return list if plan.flatten.is_plain else plan.flatten.generate_wrap(check=False)


def _hold(plan: InputPlan, leaves: Sequence[Any], values: Sequence[Any]) -> None:
    """Puts leaves into wrappers whose constructors keep others of the same memory, as in `self.a = a.detach()`."""
    for slot in plan.graph_slots:
        leaf = leaves[slot]
        if plan.is_dense(slot) or not isinstance(leaf, MetaTensor):
            continue
        place = plan.index_map.slots[slot]
        holder = values[place.outer]
        if not place.path[-1].startswith("."):  # a container has what it was given
            continue
        for step in place.path[:-1]:
            holder = _after(holder, step)
        held = getattr(holder, place.path[-1][1:])
        if held is leaf or not isinstance(held, MetaTensor):
            continue
        if Storage.of(held) is Storage.of(leaf) and held.meta_spec.equals(leaf.meta_spec):
            setattr(holder, place.path[-1][1:], leaf)


def _after(holder: Any, step: str) -> Any:
    """Returns what a step of a path leads to: an attribute of a wrapper, or an entry of a container."""
    if step.startswith("."):
        return getattr(holder, step[1:])
    entries = holder.items() if isinstance(holder, dict) else enumerate(holder)
    return next(part for key, part in entries if ContainerMeta.step(key) == step)


def _placeholders(plan: InputPlan, user: UserInputs, recorder: Recorder) -> list[Any]:
    """Returns the traced value of each flat slot."""
    leaves: list[Any] = list(user.patterns)
    for number, slot in enumerate(plan.graph_slots, 1):
        pattern, real = user.patterns[slot], user.leaves[slot]
        if MetaTensor.is_over(real):
            raise TraceError(messages.OVER.format(path=plan.desc_of(slot)))
        if is_symbolic(pattern):
            recorder.symint_placeholder(f"primals_{number}", pattern, plan.desc_of(slot))
            continue
        spec = pattern.meta_spec if isinstance(pattern, MetaTensor) else Spec.of(pattern)
        leaf = leaves[slot] = recorder.placeholder(f"primals_{number}", spec, plan.desc_of(slot))
        if not isinstance(real, MetaTensor):
            recorder.listeners.real_tensors.stand_in(real, leaf)
            recorder.listeners.real_tensors.bytes_of[Storage.of(leaf)] = real.untyped_storage().nbytes()
    for cluster in overlapping_slots(user.leaves):
        recorder.listeners.argument_overlap.of_inputs.update((Storage.of(leaves[slot]), cluster) for slot in cluster)
    for slot in plan.structure:  # see Note [Jagged tensors]
        first = next(s for s in plan.structure if user.leaves[s] is user.leaves[slot])
        leaves[slot] = leaves[first]
        outer = plan.index_map.slots[slot].outer
        recorder.listeners.real_tensors.let_read(leaves[slot], user.leaves[slot], plan.paths[outer], slot)
    return leaves


def is_graph_value(leaf: Any) -> bool:
    """Returns whether a flat slot holds what a graph computes with.

    An opaque inner value is a constant of the signature.
    """
    return isinstance(leaf, torch.Tensor) or is_symbolic(leaf)


Gradient = tuple[Value, tuple[int, ...]]
"""How a gradient is made of what backward computes, and the positions of the tangents that it comes from."""


def _describe(arguments: Arguments, position: int) -> InputDescriptor:
    """Returns the descriptor of one of the tensors of a call, by the first place where it stands."""
    place, of_view = arguments.place_of(position)
    return ViewBase(_describe_place(place)) if of_view else _describe_place(place)


def _with_unique_names(descs: Sequence[InputDescriptor]) -> tuple[InputDescriptor, ...]:
    """Renames parameters and buffers to their paths where those of two modules have one name."""
    counts = Counter(desc.target for desc in descs if isinstance(desc, ParamInput | BufferInput))
    return tuple(
        dataclasses.replace(desc, target=desc.path)
        if isinstance(desc, ParamInput | BufferInput) and counts[desc.target] > 1
        else desc
        for desc in descs
    )


def _describe_place(place: Place) -> InputDescriptor:
    if isinstance(place, ArgumentPlace):
        return PlainInput(place.path, place.leaf)
    if isinstance(place, HeldPlace):
        return HeldInput(place.path, place.number)
    target = place.path.partition(".")[2]
    return (
        ParamInput(place.path, target) if place.table == _torch.modules.PARAMETERS else BufferInput(place.path, target)
    )


def _no_input(gradient: torch.Tensor) -> Any:
    """Returns a tensor in place of a `.grad`: it is no input of the graph, so reads of it are refused."""
    with _torch.dispatch.disable_current_modes():
        fake = places.sparse_like(gradient, MetaTensor.like) if gradient.is_sparse else MetaTensor.like(gradient)
        for leaf in FlattenPlan.leaves_of(fake):
            if isinstance(leaf, MetaTensor):
                leaf.meta_tag = GRADIENT
        return fake


def _alike(tensor: torch.Tensor, gradient: torch.Tensor) -> bool:
    """Returns whether a gradient has the class, sizes, strides and dtypes of its tensor."""
    if type(gradient) not in (type(tensor), torch.Tensor) or gradient.layout is not tensor.layout:
        return False
    pairs = [FlattenPlan.leaves_of(x) for x in (tensor, gradient)]
    if len(pairs[0]) != len(pairs[1]):
        return False
    return all(
        isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and _metadata(x) == _metadata(y)
        for x, y in zip(*pairs, strict=True)
    )


def _metadata(leaf: torch.Tensor) -> tuple[Any, ...]:
    return leaf.size(), leaf.stride(), leaf.dtype, leaf.device


def _unread(leaf: MetaTensor) -> MetaTensor:
    """Returns a leaf like this one that is no input of the graph, so whatever reads it is refused."""
    fake = new_leaf(leaf.meta_spec)
    fake.meta_tag = GRADIENT
    return fake


def _fake(leaf: Any) -> Any:
    """Returns another leaf for the same graph input."""
    if not isinstance(leaf, MetaTensor):
        return leaf
    fake = new_leaf(leaf.meta_spec, Storage.of(leaf))
    fake.meta_tag = leaf.meta_tag
    return fake


def _has_symbols(spec: Any) -> bool:
    return is_symbolic(spec) or isinstance(spec, Spec) and spec.solver is not None
