"""The listener that writes what it hears into a graph."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot._stack import format_frames, user_frames, user_line
from subclass_aot.call import refuse_without_memory
from subclass_aot.descriptors import InputDescriptor
from subclass_aot.errors import TraceError, UnknownTensorError
from subclass_aot.graph import internal_overlap, lstm
from subclass_aot.graph.auto_functionalize import has_no_functional_variant, refuse_overlap
from subclass_aot.graph.constants import Readable, known_value
from subclass_aot.graph.internal_overlap import apart, has_internal_overlap
from subclass_aot.graph.lazy_views import LazyViews
from subclass_aot.graph.looks import Look, Looks, Recorded, may_be_compared
from subclass_aot.graph.messages import CONSTANT_REQUIRES_GRAD, FOREIGN_LEAF, NESTED_INT, UNHEARD
from subclass_aot.graph.mutation_log import MutationLog, Phase
from subclass_aot.graph.node_meta import name_of, val_of
from subclass_aot.graph.resize import RESIZES
from subclass_aot.graph.retrace import Retrace
from subclass_aot.graph.rng import SEEDED, Draws
from subclass_aot.graph.symint_nodes import SymintNodes
from subclass_aot.meta import MetaTensor, Spec, Stream, new_leaf, root
from subclass_aot.operators import argument_at, effects_of
from subclass_aot.symbols import current_symbols, is_symbolic


class _Gradient:
    """The tag of a tensor that stands for a `.grad` which is no input."""


GRADIENT = _Gradient()


def is_gradient(value: Any) -> bool:
    """Whether a tensor stands for a `.grad` that is no input."""
    return type(value) is MetaTensor and value.tag is GRADIENT


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """What was recorded up to some moment, safe from what is done to the graph afterwards."""

    nodes: list[tuple[fx.Node, Any, Any]]
    constants: dict[str, torch.Tensor]
    mutations: MutationLog
    numbers: SymintNodes


class Recorder(Stream):
    """Records the operators on leaves as an `fx.Graph`, as written: with mutations, views and duplicates.

    Each leaf's `tag` is its node. Nodes carry in `meta`: `val` (a tensor without data), `spec`, `stack_trace` (the
    user's lines; for backward those of the forward operator) and `partitioner_tag` (forward or backward).

    Attributes:
        graph: The graph so far.
        numbers: The nodes of symbolic sizes.
        phase: What is recorded now.
        constants: Real tensors met on the way, by attribute name.
        read_slots: The flat slots of inputs whose values were read while tracing.
        mutations: What the program has written, and turned.
        lazy_views: What was computed where eager has lazy views.
    """

    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]] | None = None) -> None:
        super().__init__(internal_overlap.before(lstm.before(decompositions or {})))
        self.graph = fx.Graph()
        self.phase: Phase = "forward"
        self.constants: dict[str, torch.Tensor] = {}
        self.mutations = MutationLog()
        self.lazy_views = LazyViews()
        self.draws: Draws | None = None  # if given, what tells a draw that is repeated
        self.stack_of: Callable[[], str] | None = None  # if given, what tells the stack trace of a new node
        self.numbers = SymintNodes(self.graph)
        self.read_slots: set[int] = set()
        self.values: Looks | None = None  # if given, what tells the values that the call has which is traced
        self.overlaps: dict[int, tuple[int, ...]] = {}  # by the id of a leaf: the flat slots of inputs that it overlaps
        self._readable: dict[fx.Node, Readable] = {}
        self._stand_ins: dict[int, tuple[torch.Tensor, MetaTensor]] = {}
        self._not_detached: torch.Tensor | None = None
        self._last_placeholder: fx.Node | None = None
        self.made: list[weakref.ref[torch.Tensor]] = []  # every leaf of this trace, and the wrappers that were used
        self._copies: dict[fx.Node, fx.Node] = {}  # after `rewind`: nodes of this graph, by those of the first
        self._stacks: dict[int, tuple[Any, ...]] = {}

    def mark(self) -> Mark:
        """What `rewind` needs to come back to this moment."""
        nodes = [(node, node.args, node.kwargs) for node in self.graph.nodes]
        numbers = self.numbers.moved(self.graph, {node: node for node, _, _ in nodes})
        return Mark(nodes, dict(self.constants), self.mutations.copy(), numbers)

    def rewind(self, mark: Mark) -> None:
        """Goes on from `mark`, in another graph. Leaves that were recorded by then belong to that one from now on."""
        self.graph, self._copies = fx.Graph(), {}
        for node, args, kwargs in mark.nodes:
            args, kwargs = fx.map_arg((args, kwargs), self._copies.__getitem__)
            copy = self._copies[node] = self.graph.create_node(node.op, node.target, args, kwargs, node.name)
            copy.meta = dict(node.meta)
            if node.op == "placeholder":
                self._last_placeholder = copy
        self.constants, self.mutations = dict(mark.constants), mark.mutations.copy()
        self.numbers = mark.numbers.moved(self.graph, self._copies)

    def moved(self, node: Any) -> Any:
        """A node of the graph as it was before `rewind`, in this one; what is no node stands for itself.

        Raises:
            LookupError: It belongs to another trace.
        """
        return node if not isinstance(node, fx.Node) or node.graph is self.graph else self._copies[node]

    def forget_tensors(self) -> None:
        """Lets go of the real tensors that leaves stand for."""
        self._readable.clear()
        self._stand_ins.clear()
        self._not_detached = None

    def collections(self) -> list[Collection[Any]]:
        """Where this recorder holds leaves and wrappers."""
        return [*self.mutations.collections(), *self.lazy_views.collections()]

    def placeholder(self, name: str, spec: Spec, desc: InputDescriptor) -> MetaTensor:
        """A new graph input."""
        leaf = self._leaf(spec, self._placeholder(name, desc))
        if spec.solver is not None and self.phase == "forward":
            self.numbers.offer(spec, leaf.tag)
        return leaf

    def symint_placeholder(self, name: str, number: Any, desc: InputDescriptor) -> fx.Node:
        """A new graph input that is a symbolic number."""
        node = self._placeholder(name, desc)
        node.meta["val"] = number
        self._describe(node)
        self.numbers.give(number, node)
        return node

    def _placeholder(self, name: str, desc: InputDescriptor) -> fx.Node:
        anchor = self._last_placeholder
        with self.graph.inserting_after(anchor) if anchor is not None else self.graph.inserting_before():
            node = self.graph.create_node("placeholder", name)
        self._last_placeholder = node
        node.meta["desc"] = desc
        return node

    def stand_in(self, tensor: torch.Tensor, leaf: MetaTensor) -> None:
        """From now on `leaf` stands for the real `tensor` wherever the program meets it."""
        self._stand_ins[id(tensor)] = tensor, leaf  # the tensor is kept alive, so that its id stays its own

    def lift(self, tensor: torch.Tensor) -> MetaTensor:
        known = self._stand_ins.get(id(tensor))
        if known is None:
            refuse_without_memory(tensor)
            leaf = self.constant(f"_constant{len(self.constants)}", tensor.detach())
            self.stand_in(tensor, leaf)
        else:
            leaf = known[1]
        if tensor.requires_grad and torch.is_grad_enabled():
            self._not_detached = tensor
        return leaf

    def _refuse_lost_gradient(self, func: _torch.Operator) -> None:
        """The operator was given a real tensor that requires grad; only `detach` may see it."""
        tensor, self._not_detached = self._not_detached, None
        if func is not torch.ops.aten.detach.default:
            kind = "an nn.Parameter" if isinstance(tensor, torch.nn.Parameter) else "a tensor"
            shape = list(tensor.shape)  # type: ignore[union-attr]
            raise TraceError(CONSTANT_REQUIRES_GRAD.format(line=user_line(), kind=kind, shape=shape))

    def constant(self, name: str, tensor: torch.Tensor) -> MetaTensor:
        """A graph attribute that holds a real tensor."""
        self.constants[name] = tensor
        return self._leaf(Spec.of(tensor), self.graph.create_node("get_attr", name))

    def value_of(self, leaf: MetaTensor) -> torch.Tensor | None:
        written = {self.node_of(owner) for owner in self.mutations.changed}
        readable = {self.moved(node): source for node, source in self._readable.items()}
        return known_value(self.node_of(leaf), self.constants, written, readable)

    def looks(self, func: _torch.Operator, args: tuple[Any, ...]) -> bool:
        if self.values is None or self.phase == "backward":
            return False
        return self.values.are_wanted(func, args[0], user_line(), current_symbols() is not None)

    def look(self, leaf: MetaTensor) -> torch.Tensor | None:
        asks = self.values is not None and self.phase == "forward"
        value: torch.Tensor | None = self._value_now(self.node_of(leaf)) if asks else None
        if value is None or not may_be_compared(value):
            return None
        with self:  # what is compared at each call is the value as it is now
            asked = torch.ops.aten.clone.default(leaf)
        self.values.found.append(Look(asked, value.tolist(), user_line()))  # type: ignore[union-attr]
        return value

    def _value_now(self, node: fx.Node) -> Any:
        """The value of a node in the call that is traced."""
        made = [leaf for leaf in (ref() for ref in self.made) if type(leaf) is MetaTensor]
        written = {self.node_of(owner) for owner in self.mutations.changed}
        recorded = Recorded(self.graph, self.constants, written, {leaf.tag for leaf in made})
        return self.values.value(recorded, node)  # type: ignore[union-attr]

    def literal(self, tensor: torch.Tensor) -> torch.Tensor:
        with _torch.disable_current_modes():
            leaf = self.lift(tensor)
        with self:
            self.stand_in(tensor, torch.ops.aten.lift_fresh_copy.default(leaf))
        return tensor

    def let_read(self, leaf: MetaTensor, tensor: torch.Tensor, path: str, slot: int) -> None:
        """From now on, the values of an input may be asked for; `read_slots` has those that were."""
        if tensor.device.type != "meta" and not isinstance(tensor, MetaTensor):
            self._readable[leaf.tag] = Readable(path, tensor, partial(self.read_slots.add, slot))

    def on_wrapper_operator(self, func: _torch.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.made += [weakref.ref(x) for x in args if isinstance(x, torch.Tensor)]
        if func in _torch.METADATA_QUERIES:
            return
        if effects_of(func).reshapes:
            self.mutations.note_metadata(func, args, kwargs, self.made)
        else:
            self.mutations.refuse_outdated([*args, *kwargs.values()])

    def on_operator(self, func: _torch.Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if self._not_detached is not None:
            self._refuse_lost_gradient(func)
        effects = effects_of(func)
        if effects.writes and has_no_functional_variant(func):
            refuse_overlap(func, args, kwargs, lambda leaf: self.overlaps.get(id(leaf), id(leaf)))
        if effects.reshapes or self.mutations.metadata:
            self.on_wrapper_operator(func, args, kwargs)
        if self.mutations.metadata and not effects.reshapes and self.phase == "forward":
            turned, given = self.mutations.turned_views, [*args, *kwargs.values()]
            turned.refuse_read(given)
            targets = [argument_at(written, args, kwargs) for written in effects.writes]
            turned.refuse_written(targets, given, torch.Tag.pointwise in func.tags)
        if func in RESIZES:
            self.mutations.note_resize(func, args[0])
        if effects.writes and not effects.reshapes:
            for written in effects.writes:
                self._take_apart(argument_at(written, args, kwargs))
        draws = self.draws if effects.random else None
        if draws is not None:
            earlier = draws.next(func, args, kwargs)
            if earlier is not None:
                return self._draw_again(self.moved(earlier), func, args, result)
        try:
            node_args = tuple([self.node_of(a) for a in args])
            node_kwargs = {name: self.node_of(a) for name, a in kwargs.items()} if kwargs else {}
        except UnknownTensorError:
            if any(is_gradient(x) for a in (*args, *kwargs.values()) for x in (a if type(a) is list else (a,))):
                raise Retrace(with_grad=True) from None
            raise UnknownTensorError(FOREIGN_LEAF.format(operator=func, line=user_line())) from None
        self.lazy_views.refuse_stale(*args, *kwargs.values())
        node = self.graph.create_node("call_function", func, node_args, node_kwargs, name=name_of(func))
        self._describe(node)
        if draws is not None:
            draws.note(node)
        if effects.writes and not effects.reshapes:
            for written in effects.writes:
                target = argument_at(written, args, kwargs)
                for leaf in target if type(target) in (list, tuple) else () if target is None else (target,):
                    self.lazy_views.note_write(self.mutations.note_write(func, leaf, self.phase))
        if type(result) is MetaTensor:
            node.meta["spec"] = result.spec
            node.meta["val"] = val_of(result.spec)
            if not effects.writes or effects.returns_written[0] is None:
                result.tag = node
                self.made.append(weakref.ref(result))
        elif is_symbolic(result):
            node.meta["val"] = result
            self.numbers.give(result, node)
        elif result is not None:
            self._multiple(node, result, effects.returns_written)
        symbols = current_symbols() if effects.data_dependent else None
        if symbols is not None:
            node.meta["unbacked"] = symbols.take_fresh_unbacked()
            leaves = result if type(result) in (tuple, list) else (result,)
            self.numbers.made(node.meta["unbacked"], leaves, symbols.places)
            for leaf in leaves:
                if type(leaf) is MetaTensor and leaf.spec.solver is not None:
                    self.numbers.offer(leaf.spec, leaf.tag)
            if self.values is not None and self.phase == "forward":
                self.values.tell_unbacked(node.meta["unbacked"], result, partial(self._value_now, node))

    def _draw_again(self, earlier: fx.Node, func: _torch.Operator, args: tuple[Any, ...], result: Any) -> None:
        """Gives the results of a draw the numbers of an earlier one: copies, since either may be written."""
        sources, leaves = [earlier], [result]
        if type(result) is tuple:
            items = {n.args[1]: n for n in earlier.users if n.target is operator.getitem}
            sources, leaves = [items[i] for i in range(len(items))], list(result)
        specs = [leaf.spec for leaf in leaves]
        if self.phase == "forward" or earlier.target is not func or [s.meta["spec"] for s in sources] != specs:
            raise TraceError(SEEDED.format(where=user_line()))
        for source, leaf in zip(sources, leaves, strict=True):
            with self.graph.inserting_after(source):
                copy = self.graph.create_node("call_function", torch.ops.aten.clone.default, (source,))
            copy.meta = dict(source.meta)
            if leaf is args[0]:
                numbers = new_leaf(leaf.spec)
                numbers.tag = copy
                self.on_operator(torch.ops.aten.copy_.default, (leaf, numbers), {}, leaf)
            else:
                leaf.tag = copy

    def _multiple(self, node: fx.Node, result: Any, written: Any) -> None:
        """One `getitem` node for each tensor of a tuple or list."""
        values = []
        for i, part in enumerate(result if type(result) in (tuple, list) else ()):
            if type(part) is list:  # a list of tensors among several results
                item = self._item(node, i)
                self._multiple(item, part, ())
                values.append(item.meta["val"])
            elif type(part) is MetaTensor:
                values.append(val_of(part.spec))
                if i < len(written) and written[i] is not None:
                    continue
                item = self._item(node, i)
                item.meta["spec"] = part.spec
                item.meta["val"] = values[-1]
                part.tag = item
                self.made.append(weakref.ref(part))
            else:
                values.append(part)
        node.meta["val"] = tuple(values) if type(result) in (tuple, list) else result

    def _item(self, node: fx.Node, i: int) -> fx.Node:
        item = self.graph.create_node("call_function", operator.getitem, (node, i), {}, name="getitem")
        item.meta["partitioner_tag"] = node.meta["partitioner_tag"]
        item.meta["stack_trace"] = node.meta["stack_trace"]
        return item

    def _leaf(self, spec: Spec, node: fx.Node) -> MetaTensor:
        leaf = new_leaf(spec)
        leaf.tag = node
        node.meta["spec"] = spec
        node.meta["val"] = val_of(spec)
        self._describe(node)
        return leaf

    def _describe(self, node: fx.Node) -> None:
        node.meta["partitioner_tag"] = _TAGS[self.phase]
        node.meta["stack_trace"] = self._stack_from_python() if self.stack_of is None else self.stack_of()

    def _stack_from_python(self) -> str:
        """The user's lines; in backward, those of the forward operator that this gradient belongs to."""
        if self.phase == "backward":
            sequence = _torch.sequence_number_of_current_gradient()
            return format_frames(self._stacks.get(sequence, ()))
        frames = user_frames()
        self._stacks.setdefault(_torch.last_sequence_number(), frames)
        return format_frames(frames)

    def node_of(self, value: Any) -> Any:
        """What stands for a value in the graph: nodes for leaves, real tensors and symbolic numbers.

        Raises:
            LookupError: A leaf belongs to another trace.
        """
        kind = type(value)
        if kind is MetaTensor:
            if type(value.tag) is not fx.Node:
                raise UnknownTensorError(UNHEARD)
            try:
                return self.moved(value.tag)
            except LookupError:
                raise UnknownTensorError(UNHEARD) from None
        if kind is list or kind is tuple:
            return [self.node_of(v) for v in value]
        if is_symbolic(value):
            return self.numbers.node(value, self._describe)
        if _torch.is_nested_int(value):
            raise TraceError(NESTED_INT.format(line=user_line()))
        return self.lift(value).tag if isinstance(value, torch.Tensor) else value

    def materialized(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        self.lazy_views.note(source, copy)

    def _take_apart(self, target: Any) -> None:
        """A part of an input that overlaps itself is written through the storage. See Note [Internal overlap]."""
        for leaf in target if type(target) in (list, tuple) else (target,):
            if type(leaf) is MetaTensor and has_internal_overlap(root(leaf)) and not has_internal_overlap(leaf):
                with self:
                    leaf.tag = apart(leaf).tag


_TAGS = {"forward": "is_forward", "backward": "is_backward"}
