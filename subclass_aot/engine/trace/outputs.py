"""Classifies each result of a traced function: computed, an input, a view of one, a constant."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.engine.call import refuse_without_memory
from subclass_aot.engine.descriptors import (
    Inner,
    InnerSize,
    InnerStride,
    IntermediateBase,
    OutputDescriptor,
    PlainOutput,
)
from subclass_aot.engine.graph import Recorder, messages
from subclass_aot.engine.outputs import (
    AliasOfLeaf,
    ComputedSymints,
    Constant,
    InputLeaf,
    Output,
    SameAsInput,
    SameAsOutput,
    Value,
    ViewOfBase,
    ViewOfInput,
)
from subclass_aot.engine.structures import structure_slots
from subclass_aot.engine.trace.autograd_graph import has_history, is_invalidated, is_only_viewed, leaf_behind
from subclass_aot.engine.trace.shared_views import SharedView, replay_of, shared_views
from subclass_aot.engine.trace.view_chains import Remade
from subclass_aot.errors import MutationError, TraceError
from subclass_aot.kit.flatten import FlattenPlan, PlainTensorMeta, Slot
from subclass_aot.kit.views import Strided, regenerated_view
from subclass_aot.meta import MetaTensor, Spec, Storage, new_leaf
from subclass_aot.meta.symbols import Number, SizesMustBeKnown, is_symbolic, lasting_key_of

_LOST_VIEW = """A result is a view, and the view cannot be regenerated from another tensor: {reason}
Return a copy instead, as in result.clone()."""

_CHANGED_SINCE = "the function changes the size or strides of its base, or of another view of that, in place"

_MADE_BEFORE = "it was made before its base, or another view of that, gets another size or other strides in place"

_RAGGED_SIZE = """A result is the size of a ragged dimension. It stands for the offsets of one call, and for no number.
Return the jagged tensor, or its offsets(), and ask for the size outside the compiled function."""


def part_of(whole: Any, slot: Slot) -> Any:
    """Returns the descriptor of a flat slot, if `whole` is that of the value that the slot belongs to."""
    for step in slot.path:
        whole = Inner(whole, step.removeprefix("."))
    if slot.dim is None:
        return whole
    return (InnerSize if slot.kind == "size" else InnerStride)(whole, slot.dim)


class OutputReader:
    """Says what each result is.

    Args:
        inputs: The traced inputs, as the function saw them.
        leaves: The flat slots of the inputs.
        recorder: What has recorded the function.
        autograd_views: Whether views of inputs are regenerated as autograd saw them. Inference mode has no such views;
            there they share storage leaf by leaf.
        hooked: Whether the function has registered hooks.
    """

    def __init__(
        self,
        inputs: Sequence[Any],
        leaves: Sequence[Any],
        recorder: Recorder,
        autograd_views: bool = True,
        hooked: bool = False,
    ) -> None:
        self.recorder, self.hooked = recorder, hooked
        mutated = [tensor for tensor, *_ in recorder.mutations.metadata]  # a view of one may not fit it any more
        self.metadata_mutated = {id(x) for t in mutated for x in (t, _torch.autograd.base_of(t)) if x is not None}
        self.autograd_views = autograd_views
        self.inputs = {id(t): i for i, t in enumerate(inputs)}
        self.blank_inputs = inputs
        slots = [(i, leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, MetaTensor)]
        self.slot_of: dict[MetaTensor | Storage, int] = {key: i for i, x in slots for key in (x, Storage.of(x))}
        self.computed: dict[OutputDescriptor, Any] = {}
        self.intermediate_bases: list[tuple[torch.Tensor, Value]] = []
        self.shared_views: dict[int, SharedView] = {}

    def read(self, results: Sequence[Any]) -> tuple[Output, ...]:
        """Returns the output that each of the flattened results is.

        Computed leaves are collected in `computed`. Where several results are views of one tensor that is not among
        them, that tensor is collected in `intermediate_bases`: autograd must know that they share it.
        """
        self.shared_views = shared_views(results, self.blank_inputs, self.autograd_views)
        shared = self._shared_bases(results)
        own = {id(r): i for i, r in reversed([*enumerate(results)]) if isinstance(r, torch.Tensor)}
        seen: dict[int, int] = {}
        outputs: list[Output] = []
        for i, result in enumerate(results):
            if not isinstance(result, torch.Tensor):
                outputs.append(self._python(result, PlainOutput(i)))
            elif id(result) in self.inputs:
                outputs.append(SameAsInput(self.inputs[id(result)]))
            elif id(result) in seen:
                outputs.append(SameAsOutput(seen[id(result)]))
            else:
                seen[id(result)] = i
                outputs.append(self._tensor(result, PlainOutput(i), shared, own))
        return tuple(outputs)

    def _python(self, result: Any, desc: OutputDescriptor) -> Output:
        """Returns a result that is no tensor."""
        if any(map(_torch.wrappers.is_nested_int, result if isinstance(result, tuple) else (result,))):
            raise TraceError(_RAGGED_SIZE)
        if is_symbolic(result):
            return ComputedSymints(False, (self._computed(result, desc),))
        if isinstance(result, torch.Size) and any(map(is_symbolic, result)):
            parts = (self._computed(n, Inner(desc, f"[{dim}]")) for dim, n in enumerate(result))
            return ComputedSymints(True, tuple(parts))
        return Constant(result)

    def _base_of(self, result: torch.Tensor) -> torch.Tensor | None:
        base: torch.Tensor | None
        base, _ = self.shared_views.get(id(result), (_torch.autograd.base_of(result), None))
        return base

    def _is_regenerated(self, result: torch.Tensor) -> bool:
        """Returns whether a view is regenerated, at each call, from its base."""
        return self.autograd_views or id(result) in self.shared_views

    def _shared_bases(self, results: Sequence[Any]) -> dict[int, tuple[int | None, torch.Tensor]]:
        """Returns tensors, no inputs, of which results are views that must share it: by id, with their own place."""
        unique = {id(r): (i, r) for i, r in reversed(list(enumerate(results))) if isinstance(r, torch.Tensor)}
        views: dict[int, list[torch.Tensor]] = {}
        bases: dict[int, torch.Tensor] = {}
        for key, (_, result) in unique.items():
            base = self._base_of(result)
            if not self._is_regenerated(result) or key in self.inputs or base is None or id(base) in self.inputs:
                continue
            if is_traced(base):
                bases[id(base)] = base
                views.setdefault(id(base), []).append(result)
        return {
            key: (unique[key][0] if key in unique else None, bases[key])
            for key, found in views.items()
            if len(found) > 1
            or key in unique
            or self._needs_base(found[0], bases[key], [r for _, r in unique.values()])
        }

    def _needs_base(self, view: torch.Tensor, base: torch.Tensor, results: Iterable[torch.Tensor]) -> bool:
        """Returns whether the one result that is a view of `base` is no tensor of its own.

        A view made under `no_grad` requires grad since its base does. Others may have the memory of the base and be no
        views of it, as what `detach` gives. Part of a conjugate has the bit that its base does not have. A later write
        into a view that has a gradient of its own passes by hooks, or is refused.
        """
        if base.requires_grad and not has_history(view):
            return True
        leaf, lazy_views = _torch.plain_subclasses.leaf_of(view), self.recorder.listeners.lazy_views
        if isinstance(leaf, MetaTensor):  # of a wrapper, the gradient that the base does not get would be zeros
            is_part = lazy_views.stand_for(Storage.of(leaf)) and not lazy_views.source_of(leaf)
            if is_part or not is_only_viewed(view, self.hooked):
                return True
        memory = _storages(base)
        return any(x is not view and not memory.isdisjoint(_storages(x)) for x in results)

    def _view_of(
        self, result: torch.Tensor, base: tuple[int | None, torch.Tensor], desc: OutputDescriptor
    ) -> ViewOfBase:
        output, tensor = base
        position = self._intermediate(tensor, desc) if output is None else -1
        rules = _torch.autograd.view_rules(result) if _torch.autograd.is_view(result) else None
        without_history = not tensor.requires_grad and not _torch.autograd.made_without_grad(rules)
        grad = has_history(result) or without_history
        again = self._replay(result, tensor, desc)
        return ViewOfBase(output, position, again.replay, again.symints, grad, _class_of(result), again.beside)

    def _intermediate(self, tensor: torch.Tensor, desc: OutputDescriptor) -> int:
        """Returns the position of a tensor, no result, among `intermediate_bases`."""
        for position, (known, _) in enumerate(self.intermediate_bases):
            if known is tensor:
                return position
        position = len(self.intermediate_bases)
        self.intermediate_bases.append((tensor, self._value(tensor, IntermediateBase(position, desc))))
        return position

    def computed_value(self, tensor: torch.Tensor, desc: OutputDescriptor) -> Value:
        """Returns a value whose every leaf the graph returns, aliases of inputs or not."""
        plan, leaves = FlattenPlan.read([tensor], where=str(desc))
        structure = structure_slots(plan.metas, plan.index_map)  # the input's, as its shape is
        pairs = zip(plan.index_map.slots, leaves, strict=True)
        sources = [
            self._leaf(x, part_of(desc, slot), new_object=False)
            if slot.flat in structure
            else self._computed(x, part_of(desc, slot))
            for slot, x in pairs
        ]
        return Value(plan.metas[0], tuple(sources), tensor.requires_grad)

    def _tensor(
        self,
        result: torch.Tensor,
        desc: OutputDescriptor,
        shared: Mapping[int, tuple[int | None, torch.Tensor]],
        own: Mapping[int, int],
    ) -> Output:
        """Returns a result that is no input, nor an earlier result.

        Args:
            result: The result.
            desc: What it is.
            shared: What `_shared_bases` has found.
            own: The positions of results, by their ids.
        """
        base = self._base_of(result)
        of_base = base is None or is_only_viewed(result, self.hooked)
        leaf = leaf_behind(result) if of_base else None
        if leaf is not None and id(leaf) in own and id(leaf) not in self.inputs:
            return ViewOfBase(own[id(leaf)], -1, _view_of_leaf(result, leaf), (), True, _class_of(result))
        view: ViewOfInput | ViewOfBase | None = None
        if base is not None and id(base) in shared:
            view = self._view_of(result, shared[id(base)], desc)
        elif base is not None and self._is_regenerated(result) and id(base) in self.inputs:
            view = self._view(result, self.inputs[id(base)], desc) if self._shares(result, base) else None
        if view is not None and (of_base or not has_history(result)):
            return view
        if is_traced(result, str(desc)):
            value = self._value(result, desc)
            rules = "DEFAULT" if view is None else _torch.autograd.view_rules(result).name
            return value if view is None else dataclasses.replace(value, view=view, view_rules=rules)
        refuse_without_memory(result, str(desc))
        return Constant(result)

    def _shares(self, view: torch.Tensor, base: torch.Tensor) -> bool:
        """Returns whether what autograd calls a view has memory of its base: a class may compute what is a view in
        torch.
        """
        if isinstance(view, MetaTensor):
            return True
        own = _storages(base)
        storages = [Storage.of(x) for x in FlattenPlan.leaves_of(view) if isinstance(x, MetaTensor)]
        return not storages or any(x in own or self.recorder.listeners.lazy_views.stand_for(x) for x in storages)

    def _value(self, result: torch.Tensor, desc: OutputDescriptor) -> Value:
        plan, leaves = FlattenPlan.read([result], where=str(desc))
        through = has_history(result)
        new_object = through and isinstance(
            plan.metas[0], PlainTensorMeta
        )  # an output with its own grad_fn cannot be the input object itself
        bits: tuple[str, ...] = ()
        is_leaf = isinstance(plan.metas[0], PlainTensorMeta) and isinstance(leaves[0], MetaTensor)
        if is_leaf and "lazy_views" in self.recorder.listeners:
            lazy = self.recorder.listeners.lazy_views.source_of(leaves[0])
            if lazy is not None:
                leaves, bits, new_object = [lazy[0]], lazy[1], True
        pairs = zip(plan.index_map.slots, leaves, strict=True)
        sources = tuple(self._leaf(leaf, part_of(desc, slot), new_object) for slot, leaf in pairs)
        return Value(plan.metas[0], sources, through, bits=bits)

    def _leaf(self, leaf: Any, desc: OutputDescriptor, new_object: bool) -> Any:
        if isinstance(leaf, MetaTensor):
            slot = self.slot_of.get(leaf)
            # The leaf of an input with mutated metadata has that from before, for the graph and for backward.
            if slot is not None and not new_object and id(leaf) not in self.metadata_mutated:
                return InputLeaf(slot)
            slot = self.slot_of.get(Storage.of(leaf))
            if slot is not None:
                start = Storage.of(leaf).spec
                shift = start.offset * start.dtype.itemsize // leaf.meta_spec.dtype.itemsize
                return AliasOfLeaf(slot, leaf.meta_spec, leaf.meta_spec.offset - shift)
        return self._computed(leaf, desc)

    def _values(self, leaf: Any) -> torch.Tensor | None:
        """Returns the values of a traced tensor, to find out how a view is made. That does not depend on them."""
        found = self.recorder.listeners.data_dependent.value_now(self.recorder, leaf)
        return self.recorder.known(leaf) if found is None else found

    def _computed(self, leaf: Any, desc: OutputDescriptor) -> Any:
        if not isinstance(leaf, torch.Tensor) and not is_symbolic(leaf):
            return leaf
        self.computed[desc] = leaf
        return desc

    def _view(self, result: torch.Tensor, value: int, desc: OutputDescriptor) -> ViewOfInput:
        again, has = self._replay(result, self.blank_inputs[value], desc), has_history(result)
        return ViewOfInput(value, again.replay, again.symints, has, _class_of(result), again.beside)

    def _replay(self, result: torch.Tensor, base: torch.Tensor, desc: OutputDescriptor) -> _Replay:
        """Returns how the view is made, taken from a fake that belongs to no trace, so that no trace is kept alive.

        Raises:
            MutationError: The metadata of its base was mutated, and it cannot be regenerated.
            SizesMustBeKnown: With known ones it can.
            TraceError: It cannot be regenerated.
        """
        _, shared = self.shared_views.get(id(result), (None, None))
        metadata_mutated = id(base) in self.metadata_mutated
        is_dense = isinstance(_torch.plain_subclasses.leaf_of(result), MetaTensor)
        if metadata_mutated and shared is None and (is_dense or is_invalidated(result)):
            return _Replay(_strided_view(result, base))
        listeners = self.recorder.listeners
        if shared is None and "mutated_views" in listeners and listeners.mutated_views.loses_gradient(result):
            return _Replay(_strided_view(result, base))
        if metadata_mutated and (shared is not None or not _torch.autograd.can_regenerate(result)):
            if shared is not None and any(map(is_symbolic, (*base.shape, *result.shape))):
                raise SizesMustBeKnown  # which tell whether it shares fields: one that does not is no such view
            raise MutationError(_LOST_VIEW.format(reason=_CHANGED_SINCE))
        again = (lambda x, number, _: shared.again(x, number)) if shared else _torch.autograd.view_function(result)
        try:
            made, clean = self._remade(base, again)
        except Exception as error:  # of torch, or of a rule for views of a class
            pass_on_interruption(error)
            if metadata_mutated:  # it was made before, and does not fit any more
                raise MutationError(_LOST_VIEW.format(reason=_CHANGED_SINCE)) from error
            raise TraceError(_LOST_VIEW.format(reason=error)) from error
        if metadata_mutated and _inner_geometry(clean) != _inner_geometry(result):
            raise MutationError(_LOST_VIEW.format(reason=_CHANGED_SINCE))
        if not _same_geometry(clean, result):  # as after `t_` under `no_grad`
            return _Replay(_strided_view(result, base))
        return self._as_data(made, clean, shared is not None, desc)

    def _as_data(self, made: Remade, clean: torch.Tensor, is_shared: bool, desc: OutputDescriptor) -> _Replay:
        """Returns how a view is regenerated: as operators, or else by what autograd noted of it.

        Args:
            made: What made it again.
            clean: It, of no trace.
            is_shared: Whether it shares fields without autograd knowing it.
            desc: The result.

        Raises:
            TraceError: Neither can be.
        """
        chain = made.chain(clean, detached=is_shared)
        symints, beside = tuple(made.symints.values()), made.tensors_beside
        if chain is not None:
            return _Replay(chain, symints, tuple(self._intermediate(x, desc) for x in beside))
        if beside:
            raise TraceError(_LOST_VIEW.format(reason="it is made of other tensors, too"))
        replay = replay_of(clean).again if is_shared else _torch.autograd.view_function(clean)
        if not symints and not _torch.wrappers.is_jagged(type(made.base)):
            return _Replay(replay)
        return _Replay(functools.partial(_with_symints, replay, tuple(made.symints)), symints)

    def _remade(self, base: torch.Tensor, again: Callable[..., torch.Tensor]) -> tuple[Remade, torch.Tensor]:
        """Makes a view again, of tensors that belong to no trace.

        Where rows of jagged tensors begin and end is a value, which they have only if the view cannot be made without.
        """
        with _torch.dispatch.disable_current_modes(), torch.no_grad():  # in which constructors of classes run
            made = Remade(_blank(base))
        try:
            return made, made.view(again)
        except Exception as error:  # of torch, which reads where rows begin
            pass_on_interruption(error)
            if not _torch.wrappers.is_jagged(type(base)) and not made.beside:
                raise
        made = Remade.of_known(made.base, base, self._values)
        return made, made.view(again)


class _Replay(NamedTuple):
    """How a view is made at a call: `replay(base, *symints, *beside)`, as of `ViewOfInput`."""

    replay: Callable[..., torch.Tensor]
    symints: tuple[Any, ...] = ()
    beside: tuple[int, ...] = ()


def _storages(tensor: torch.Tensor) -> set[Storage]:
    """Returns the memory of the leaves of a tensor that belong to the trace."""
    return {Storage.of(x) for x in FlattenPlan.leaves_of(tensor) if isinstance(x, MetaTensor)}


def _class_of(result: torch.Tensor) -> type | None:
    """Returns the plain subclass of a result."""
    return None if _torch.plain_subclasses.leaf_of(result) is result else type(result)


def _blank(traced: torch.Tensor) -> Any:
    """Returns a tensor like a traced one that belongs to no trace; in the place of a front, dense."""
    leaf = _torch.plain_subclasses.leaf_of(traced)
    return MetaTensor.like(traced.detach()) if leaf is traced else new_leaf(leaf.meta_spec)


def _same_geometry(clean: torch.Tensor, result: torch.Tensor) -> bool:
    """Returns whether two tensors have the same sizes and strides, as far as these have numbers.

    Nested ints have none, and those of a fake are others. A size that depends on data has the number of one call.
    """
    if clean.dim() != result.dim():
        return False
    pairs = zip((*clean.shape, *clean.stride()), (*result.shape, *result.stride()), strict=True)
    return all(n == m for n, m in pairs if not (_has_no_number(n) or _has_no_number(m)))


def _has_no_number(size: Number) -> bool:
    return _torch.wrappers.is_nested_int(size) or _torch.symbolic.depends_on_data(size)


def _inner_geometry(wrapper: torch.Tensor) -> list[Any]:
    """Returns the specs of the dense leaves of a wrapper, and where they begin.

    Raises:
        SizesMustBeKnown: It has symbolic sizes.
    """
    leaves = FlattenPlan.leaves_of(wrapper)
    if any(is_symbolic(x) or isinstance(x, MetaTensor) and x.meta_spec.solver is not None for x in leaves):
        raise SizesMustBeKnown
    return [(x.meta_spec, x.meta_spec.offset) if isinstance(x, MetaTensor) else x for x in leaves]


def _with_symints(
    replay: Callable[..., torch.Tensor], keys: tuple[Any, ...], base: torch.Tensor, *symints: int
) -> torch.Tensor:
    """Makes a view again with the numbers of this call."""
    known, ragged = dict(zip(keys, symints, strict=True)), _torch.wrappers.ragged_size_of(base)

    def now(number: Any) -> Any:
        if _torch.wrappers.is_nested_int(number):
            return ragged
        return known[lasting_key_of(number)] if is_symbolic(number) else number

    return replay(base, now)


def _strided_view(result: torch.Tensor, base: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Describes a view by size, stride and offset, because its base's metadata was mutated and the operators no longer
    apply.

    Autograd does not note that, so what it knows of views does not fit them; a query may even crash. A dense tensor
    is all of its storage, whatever its sizes are, so a view of it is sizes, strides and an offset.
    """
    leaf, leaf_of_base = _torch.plain_subclasses.leaf_of(result), _torch.plain_subclasses.leaf_of(base)
    dense = isinstance(leaf, MetaTensor) and isinstance(leaf_of_base, MetaTensor) and result.dtype == base.dtype
    if is_invalidated(result):
        raise MutationError(_LOST_VIEW.format(reason=_MADE_BEFORE))
    if not dense:
        raise MutationError(_LOST_VIEW.format(reason=_CHANGED_SINCE))
    now, before = leaf.meta_spec, leaf_of_base.meta_spec
    if now.solver is not None or before.solver is not None:
        raise SizesMustBeKnown
    return Strided(now.size, now.stride, now.offset - before.offset)


def _view_of_leaf(result: torch.Tensor, leaf: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Describes a view of a leaf that is a view itself: autograd records only how both are made of their base.

    Raises:
        MutationError: That does not say it.
        SizesMustBeKnown: They have symbolic sizes.
    """
    view_leaf, leaf_leaf = _torch.plain_subclasses.leaf_of(result), _torch.plain_subclasses.leaf_of(leaf)
    dense = isinstance(view_leaf, MetaTensor) and isinstance(leaf_leaf, MetaTensor)
    if dense and result.dtype is leaf.dtype:
        now, before = view_leaf.meta_spec, leaf_leaf.meta_spec
        if now.solver is not None or before.solver is not None:
            raise SizesMustBeKnown
        size, stride, start = now.size, now.stride, now.offset - before.offset
        with _torch.dispatch.disable_current_modes(), torch.no_grad():
            if regenerated_view(_blank(leaf), size, stride, start) is not None:
                return Strided(size, stride, start, by_operators=True)  # they make one of a real tensor, as here
    raise MutationError(messages.VIEW_OF_LEAF)


def is_traced(result: torch.Tensor, name: str = "value") -> bool:
    """Returns True if a tensor, of which errors speak by `name`, has at least one leaf that belongs to the trace."""
    leaves = FlattenPlan.leaves_of(result, name)
    return any(isinstance(leaf, MetaTensor) for leaf in leaves)


def packed_tangent(tensor: Any) -> Any:
    """Returns a gradient of a traced tensor as it is expected: like it, with strides as `spec_of_tangent` has them.

    A wrapper that is a view has the strides of the view, and so have the wrappers inside it.
    """
    if _torch.wrappers.is_jagged(type(tensor)):  # only the values of a jagged tensor have a storage
        return tensor
    leaves = FlattenPlan.leaves_of(tensor)
    specs = [x.meta_spec for x in leaves if isinstance(x, MetaTensor)]
    return tensor if all(spec_of_tangent(s) is s for s in specs) else _packed(tensor)


def _packed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_packed, value))
    if isinstance(value, dict):
        return {key: _packed(part) for key, part in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    if not _torch.wrappers.is_traceable_wrapper_subclass(value):
        return new_leaf(spec_of_tangent(value.meta_spec if isinstance(value, MetaTensor) else Spec.of(value)))
    names, context = value.__tensor_flatten__()
    inner = {name: _packed(getattr(value, name)) for name in names}
    outside = Spec.make(tuple(value.size()), value.stride(), 0, value.dtype, value.device)
    return type(value).__tensor_unflatten__(inner, context, value.size(), spec_of_tangent(outside).stride)


def spec_of_tangent(spec: Spec) -> Spec:
    """Returns the expected spec of the gradient of a leaf: the leaf's strides if they are dense, else packed."""
    with _torch.dispatch.disable_current_modes(), _torch.postponed.without_slow_imports():
        if spec.solver is None:
            dense = torch.empty_strided(spec.size, spec.stride, dtype=spec.dtype, device="meta")
        else:
            dense = new_leaf(Spec.make(spec.size, spec.stride, 0, spec.dtype, spec.device))  # of which formulas say it
        fake = torch.empty_like(torch.empty_like(dense))  # once gives strides of dims of size one that twice does not
    return Spec.make(spec.size, fake.stride(), 0, spec.dtype, spec.device, spec.layout)
