"""The stream that writes operators into a graph."""

from __future__ import annotations

import functools
import operator
import sys
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base.operators import Effects, effects_of
from subclass_aot.base.written_out import WRITTEN_OUT
from subclass_aot.engine.descriptors import InputDescriptor, describe
from subclass_aot.engine.graph import recurrent
from subclass_aot.engine.graph.listeners import internal_overlap
from subclass_aot.engine.graph.listeners.annotations import annotations_of
from subclass_aot.engine.graph.listeners.listener import written_leaves
from subclass_aot.engine.graph.listeners.mutation_log import MutationLog
from subclass_aot.engine.graph.listeners.of_recorder import Listeners
from subclass_aot.engine.graph.listeners.places import AS_STRIDED
from subclass_aot.engine.graph.listeners.resized_out import inputs_to_resize
from subclass_aot.engine.graph.looks import Looks
from subclass_aot.engine.graph.messages import FOREIGN_LEAF, NESTED_INT, UNKNOWN_LEAF
from subclass_aot.engine.graph.node_meta import name_of, val_of
from subclass_aot.engine.graph.retrace import Retrace
from subclass_aot.engine.graph.symint_nodes import SymintNodes
from subclass_aot.engine.graph.tape import Phase, Tape
from subclass_aot.errors import TraceError, UnknownTensorError
from subclass_aot.meta import MetaTensor, Spec, Storage, new_leaf, threads
from subclass_aot.meta.symbols import current_symbols, is_symbolic


class _Gradient:
    """The tag of a tensor that stands for a `.grad` which is no input."""


GRADIENT = _Gradient()


def is_gradient(value: object) -> bool:
    """Returns whether a tensor is a traced `.grad` that is no input."""
    return type(value) is MetaTensor and value.meta_tag is GRADIENT


def tag(leaf: MetaTensor, node: object) -> None:
    """Registers the node of a leaf, and of its storage, if that is new."""
    leaf.meta_tag = node
    storage = Storage.of(leaf)
    if storage.tag is None:
        storage.tag = node


_ASKED = ("is_over", "thread", "real_inputs")
"""Queries of a kept tensor about its graph, when that is gone. See `meta/threads.py`."""


class _Owned:
    """A graph that a recorder and its forks have in common. It is gone with the last of them, without the collector."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():  # what would be called is gone
            return
        kept = {name: x for name, x in vars(self.graph).items() if name in _ASKED}
        _torch.graphs.dismantle(self.graph)
        vars(self.graph).update(kept)


class _Plan(NamedTuple):
    """What a recorder does at each call of an operator.

    Attributes:
        func: The operator; its id is of what lives.
        name: The name of a node.
        effects: What it does.
        before: The listeners that are called before it is recorded.
        after: Those that are called with its node.
        writes: Those that are called for each leaf that it writes.
    """

    func: _torch.operators.Operator
    name: str
    effects: Effects
    before: list[Callable[..., Any]]
    after: list[Callable[..., Any]]
    writes: list[Callable[..., Any]]


class Recorder(Tape):
    """Records the operators on leaves as an `fx.Graph`, as written: with mutations, views and duplicates.

    Each leaf's `tag` is its node. Nodes carry in `meta`: `val` (a tensor without data), `spec`, `stack_trace` (the
    user's lines; for backward those of the forward operator), `partitioner_tag` (forward or backward), and what
    `Annotations` notes.

    The graph only grows, and a leaf has the same node for ever. Several backwards of one forward are recorded in it one
    after the other, each by a recorder of its own: see `fork`.

    Args:
        decompositions: Operators to replace by a function of others.
        looks: The values of the call that is traced, if they may be read.
        listeners: The listeners of the operators, if not new ones.

    Attributes:
        graph: The graph so far, in which placeholders stand where they were made.
        nodes: Those that this recorder knows.
        symints: The nodes of symbolic sizes.
        phase: What is recorded now.
        listeners: The listeners of the operators.
        made: Every leaf of this trace, and the wrappers that were used.
        strangers: Leaves of traces that are over, which this one met.
    """

    # More than ten attributes: the graph and its parts, listeners of operators, and what a stream has.

    listeners: Listeners

    def __init__(
        self,
        decompositions: Mapping[Any, Callable[..., Any]] | None = None,
        looks: Looks | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        listeners = listeners or Listeners(looks)
        of_gradients = functools.partial(_counted_from_a_gradient, listeners)
        first = internal_overlap.before(decompositions) if decompositions else internal_overlap.FIRST
        own: dict[Any, Callable[..., Any]] = {
            AS_STRIDED: of_gradients,
            recurrent.LAYER: recurrent.recorded_layer,
            **WRITTEN_OUT,
        }
        super().__init__({**own, **(decompositions or {}), **first})
        self.default_dtype = torch.get_default_dtype()
        self._owned = _Owned(fx.Graph())
        self.graph = self._owned.graph
        self.nodes: set[fx.Node] = set()
        self.symints = SymintNodes(self.graph)
        self.phase: Phase = "forward"
        self.listeners = listeners
        self.begins_read: list[Any] = []
        self.graph.begins_read = self.begins_read  # type: ignore[attr-defined]  # see `MetaTensor`
        self.made: list[weakref.ref[torch.Tensor]] = []
        self.strangers: list[torch.Tensor] = []
        self._on_node = self.listeners.methods("on_node")
        self._plans = listeners.plans  # by the id of an operator, which has its hash in Python

    @property
    def mutations(self) -> MutationLog:
        """The data and metadata that the program has written."""
        return self.listeners.mutations

    def on_new_effects(self, func: _torch.operators.Operator) -> None:
        self._plans.pop(id(func), None)

    def before_out(self, functional: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for out, size, stride in inputs_to_resize(functional, args, kwargs):
            with self:
                out.resize_(size)
                if out.stride() != stride:
                    out.as_strided_(size, stride)

    def is_kept(self, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return effects_of(func).random and self.listeners.random_numbers.draws_from_state(self, args, kwargs)

    def fork(self) -> Recorder:
        """Returns a recorder that goes on from here in the same graph, and knows nothing of what others record
        there.
        """
        fork = Recorder(listeners=self.listeners.fork())
        fork.decompositions, fork._replaced = self.decompositions, self._replaced
        fork.graph, fork._owned, fork.begins_read = self.graph, self._owned, self.begins_read
        fork.nodes, fork.symints = set(self.nodes), self.symints.copy()
        fork.phase, fork.made, fork.strangers = self.phase, self.made, self.strangers
        return fork

    def in_order(self) -> list[fx.Node]:
        """Returns the nodes that this recorder knows, in the order of the graph."""
        return [node for node in self.graph.nodes if node in self.nodes]

    def forget_tensors(self) -> None:
        """Releases the real tensors that leaves stand for."""
        for forget in self.listeners.methods("forget"):
            forget()

    def collections(self) -> list[Collection[Any]]:
        """Returns the collections in which this recorder holds leaves and wrappers."""
        of_listeners = [held for collections in self.listeners.methods("collections") for held in collections()]
        return [self.begins_read, *of_listeners]

    def placeholder(self, name: str, spec: Spec, desc: InputDescriptor) -> MetaTensor:
        """Returns a new graph input."""
        node = self.create("placeholder", name)
        describe(node, desc)
        leaf = self.new_leaf(spec, node)
        if spec.solver is not None and self.phase == "forward":
            self.symints.offer(spec, node)
        return leaf

    def symint_placeholder(self, name: str, number: _torch.symbolic.Symbolic, desc: InputDescriptor) -> fx.Node:
        """Returns a new graph input that is a symbolic number."""
        node = self.create("placeholder", name)
        describe(node, desc)
        node.meta["val"] = number
        self._describe(node)
        self.symints.give(number, node)
        return node

    def new_leaf(self, spec: Spec, node: fx.Node) -> MetaTensor:
        """Returns a new leaf that is what a new node gives."""
        leaf = new_leaf(spec)
        tag(leaf, node)
        node.meta["spec"] = spec
        node.meta["val"] = val_of(spec)
        self._describe(node)
        return leaf

    def create(
        self,
        op: str,
        target: fx.node.Target,
        args: tuple[Any, ...] = (),
        name: str | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> fx.Node:
        """Returns a new node, which this recorder knows."""
        node = _torch.graphs.new_node(self.graph, op, target, args, kwargs, name)
        self.nodes.add(node)
        return node

    def lift(self, tensor: torch.Tensor) -> MetaTensor:
        threads.check_made_here(self.graph, tensor)
        leaf = self.listeners.real_tensors.leaf_of(self, tensor)
        if tensor.requires_grad and torch.is_grad_enabled():
            self.listeners.lost_gradients.note(tensor)
        return leaf

    def literal(self, tensor: torch.Tensor) -> torch.Tensor:
        self.listeners.real_tensors.literal(self, tensor)
        return tensor

    def value_of(self, leaf: MetaTensor) -> torch.Tensor | None:
        symbols = current_symbols()
        if symbols is not None and symbols.repeats:  # what was recorded with a symbol stays so, if more is known by now
            return None
        return self.listeners.real_tensors.value_of(self, leaf)

    def looks(self, func: _torch.operators.Operator, args: tuple[Any, ...]) -> bool:
        wanted: bool = self.listeners.data_dependent.are_wanted(self, func, args)
        return wanted

    def look(self, leaf: MetaTensor) -> torch.Tensor | None:
        value: torch.Tensor | None = self.listeners.data_dependent.look(self, leaf)
        return value

    def shown(self, leaf: MetaTensor, form: str | None) -> torch.Tensor | None:
        known = super().shown(leaf, form)
        return self.listeners.data_dependent.look(self, leaf, text=True, form=form) if known is None else known

    def memory(self, leaf: MetaTensor) -> torch.Tensor | None:
        """Returns the values of a leaf in this call, which a program gets as an array."""
        value: torch.Tensor | None = self.listeners.data_dependent.memory(self, leaf)
        return value

    def on_array(self, leaf: MetaTensor, array: Any) -> None:
        self.listeners.arrays.note(self, leaf, array)

    def replaced(self, leaf: MetaTensor, other: torch.Tensor) -> MetaTensor:
        found: MetaTensor = self.listeners.assigned_data.note(self, leaf, other)
        return found

    def written_nodes(self) -> set[fx.Node]:
        """Returns the nodes whose memory was written."""
        return {storage.tag for storage in self.mutations.changed}

    def note_used(self, args: tuple[Any, ...]) -> None:
        """Notes what an operator is given, so that the trace knows it: wrappers, leaves whose metadata changed."""
        self.made += [weakref.ref(x) for x in args if isinstance(x, torch.Tensor)]

    def on_front(self, front: torch.Tensor) -> None:
        """Notes a tensor of a plain subclass, so that the trace knows it."""
        self.made.append(weakref.ref(front))

    def on_lazy_view(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        self.listeners.lazy_views.note(source, copy)

    def on_wrapper_operator(
        self, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.note_used(args)
        of_wrappers = self.listeners.of_wrappers
        if id(func) not in of_wrappers:
            (of_wrappers[id(func)],) = self.listeners.methods_for(func, "on_wrapper_operator")
        for listener in of_wrappers[id(func)]:
            listener(self, func, args, kwargs)

    def on_operator(
        self, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: object
    ) -> None:
        plan = self._plans.get(id(func))
        if plan is None:
            methods = self.listeners.methods_for(func, "on_operator", "on_recorded", "on_write")
            plan = self._plans[id(func)] = _Plan(func, name_of(func), effects_of(func), *methods)
        _, name, effects, before, after, writes = plan
        for listener in before:
            if listener(self, func, args, kwargs, result):
                return
        try:
            node_args = tuple([self.node_of(a) for a in args])
            node_kwargs = {name: self.node_of(a) for name, a in kwargs.items()} if kwargs else {}
        except UnknownTensorError:
            given = [x for a in (*args, *kwargs.values()) for x in (a if type(a) is list else (a,))]
            raise self._of_a_stranger(FOREIGN_LEAF.format(operator=func, line=user_line()), given) from None
        node = _torch.graphs.new_node(self.graph, "call_function", func, node_args, node_kwargs, name)
        self._describe(node)
        if type(result) is MetaTensor:
            node.meta["spec"] = result.meta_spec
            node.meta["val"] = val_of(result.meta_spec)
            if not effects.writes or effects.returns_written[0] is None:
                tag(result, node)
                self.made.append(weakref.ref(result))
        elif is_symbolic(result):
            node.meta["val"] = result
            self.symints.give(result, node)
        elif result is not None:
            self._multiple(node, result, effects.returns_written)
        for listener in after:
            listener(self, node, func, args, kwargs, result)
        for leaf in written_leaves(func, args, kwargs) if effects.writes else ():
            for listener in writes:
                listener(self, func, leaf)

    def _multiple(self, node: fx.Node, result: object, written: Sequence[object]) -> None:
        """Records one `getitem` node for each tensor of a tuple or list."""
        values = []
        for i, part in enumerate(result if type(result) is tuple or type(result) is list else ()):
            if type(part) is list:  # a list of tensors among several results
                item = self._item(node, i)
                self._multiple(item, part, ())
                values.append(item.meta["val"])
            elif type(part) is MetaTensor:
                values.append(val_of(part.meta_spec))
                if i < len(written) and written[i] is not None:
                    continue
                item = self._item(node, i)
                item.meta["spec"] = part.meta_spec
                item.meta["val"] = values[-1]
                tag(part, item)
                self.made.append(weakref.ref(part))
            else:
                values.append(part)
                if is_symbolic(part):
                    item = self._item(node, i)
                    item.meta["val"] = part
                    self.symints.give(part, item)
        node.meta["val"] = tuple(values) if type(result) in (tuple, list) else result

    def _item(self, node: fx.Node, i: int) -> fx.Node:
        item = self.create("call_function", operator.getitem, (node, i), "getitem")
        item.meta["partitioner_tag"] = node.meta["partitioner_tag"]
        item.meta["stack_trace"] = node.meta["stack_trace"]
        item.meta.update(annotations_of(node))
        return item

    def _describe(self, node: fx.Node) -> None:
        self.nodes.add(node)  # those of numbers are made elsewhere
        node.meta["partitioner_tag"] = _TAGS[self.phase]
        for listener in self._on_node:
            listener(self, node)

    def node_of(self, value: Any) -> Any:
        """Returns the argument of a node that means a value: nodes for leaves, real tensors and symbolic numbers.

        Raises:
            UnknownTensorError: A leaf belongs to another trace.
            Retrace: It is, or is part of, the gradient of an input.
        """
        kind = type(value)
        if kind is MetaTensor:
            if value.meta_tag not in self.nodes:
                raise self._of_a_stranger(UNKNOWN_LEAF, [value])
            return value.meta_tag
        if kind is list or kind is tuple:
            return [self.node_of(v) for v in value]
        if is_symbolic(value):
            return self.symints.node(value, self._describe)
        if _torch.wrappers.is_nested_int(value):
            raise TraceError(NESTED_INT.format(line=user_line()))
        return self.lift(value).meta_tag if isinstance(value, torch.Tensor) else value

    def _of_a_stranger(self, message: str, given: list[Any]) -> BaseException:
        """Makes what to raise where a tensor is none of the trace: the gradient of an input, or of elsewhere."""
        if any(map(is_gradient, given)):
            return Retrace(with_grad=True)
        self.strangers += [x for x in given if MetaTensor.is_over(x)]
        return UnknownTensorError(message)


def _counted_from_a_gradient(listeners: Listeners, *args: Any, **kwargs: Any) -> Any:
    return listeners.places.counted_from_a_gradient(*args, **kwargs)


_TAGS = {"forward": "is_forward", "backward": "is_backward"}
