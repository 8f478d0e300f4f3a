"""Writes in place where a graph without writes may: into memory that the graph itself made.

Note [Writes in place]
~~~~~~~~~~~~~~~~~~~~~~
Functionalization makes of a write into a part of a tensor a new tensor of full size, so that a loop that fills a tensor
row by row takes time quadratic in the number of rows. Backward has the same: each step copies the gradient, sets a part
of the copy to zero, and adds a gradient of full size that is zero outside of one part. For compilers that is the
right form. Where the graph runs operator by operator, such an operator writes into the memory of the tensor that it
splits, if nothing else reads that memory later:

- an operator of torch that always makes new memory made it: no input, no constant, and nothing of another library;
- no tensor on that memory is read later. Views are on the memory of what they view; what an unknown operator returns
  may be on that of any of its arguments. What the graph returns is read at its end, so results and what is saved for
  backward are safe, and what is kept for an operator that was put off is read there.

A pointwise operator on lists (`_foreach_mul`) does so if it may write over each tensor of its first one.

A part that a pointwise operator computes of itself is computed where it stands: the gates of a recurrent cell.

A pointwise operator writes over its first operand likewise, or over the other of two that may change places: composite
operators do so in eager with what they compute on their way, and each new tensor of a large size costs a pass over it.

What an earlier tensor is already needs no operator: the transpose of a transpose, `x ** 1`, the same view once more. A
sum does not keep a dim that a view would drop.

A tensor that takes over the memory of another is the only one alive on it. So it is enough to know until when the
tensors are read that share memory in the graph as it stands: linear time, and the graph itself is not changed. Results
are the same to the last bit, but that a gradient of -0.0 to which nothing is added keeps its sign.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import torch
from torch import fx

from subclass_aot.backends.in_place import BACKWARD_OF, OVERWRITING, STRIDED, VIEW_OF, WRITING
from subclass_aot.backends.lists import items_of, writing_form
from subclass_aot.backends.memory import Memory, copied_by
from subclass_aot.backends.plan import Call, Plan, look_alike, nodes_in, owner_of
from subclass_aot.backends.shorter import plain_spec, shorter_call
from subclass_aot.backends.written_inputs import write_where_they_stand
from subclass_aot.base import _torch
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.passes import is_symint, must_run, viewed_node
from subclass_aot.meta import Spec

_aten = torch.ops.aten


def plan_of(graph: fx.Graph) -> Plan:
    """Returns how to run a graph with as few copies as can be."""
    called = [node for node in graph.nodes if node.op == "call_function"]
    if len(called) == 1 and _is_new(called[0]):  # there is no memory that it could take over
        [node] = called
        return Plan([(node, Call(node.target, node.args, dict(node.kwargs)))], {})
    return _Planner(graph).plan()


def _is_new(node: fx.Node) -> bool:
    """Returns whether an operator does nothing but compute new tensors."""
    return _torch.operators.is_overload(node.target) and effects_of(node.target).pure


class _Planner:
    # More than ten attributes: each is found in one pass over the graph, and all are read in the next.
    def __init__(self, graph: fx.Graph) -> None:
        self.nodes: list[fx.Node] = list(graph.nodes)
        self.index = {node: i for i, node in enumerate(self.nodes)}
        self.pure = next((i for i, node in enumerate(self.nodes) if _writes(node)), len(self.nodes))
        self.memory = Memory(self.nodes)
        self.results = set(self.nodes[-1].all_input_nodes)
        self.put_off = dict(self._put_off())
        self.last = self._last()
        self.exact = self._exact()
        self.steps: list[tuple[fx.Node | None, Call]] = []
        self.same: dict[fx.Node, fx.Node] = {}
        self.views: dict[tuple[object, ...], fx.Node] = {}
        self.skipped: set[object] = set()

    def plan(self) -> Plan:
        for node in self.nodes:
            if node.op != "call_function" or node in self.put_off or node in self.same:
                continue
            if self.index[node] < self.pure:
                if node.target is _aten._local_scalar_dense.default and self._is_read(node):
                    continue
                source = self._source_of(node)
                if source is not None:
                    self.same[node] = source
                    continue
                if _IN_PLACE.get(node.target, _never)(self, node):
                    continue
                if node.args and isinstance(node.args[0], list | tuple) and self.each(node):
                    continue
            shorter = shorter_call(node)
            self.steps.append((node, self._call(node) if shorter is None else Call(*shorter)))
            if shorter is not None:
                self.skipped.add(node.args[0])
        self._drop_unread(self.nodes[-1])
        plan = Plan(self.steps, self.same)
        write_where_they_stand(plan, self.nodes)
        return plan

    def _source_of(self, node: fx.Node) -> fx.Node | None:
        """Returns the tensor that a node is once more: of which it is a view just like it, or a copy in vain.

        The transpose of a transpose is such a view; every linear layer has two in its backward. What the graph returns
        is a tensor of its own, neither an input nor returned twice.
        """
        source, spec = copied_by(node) if self.pure == len(self.nodes) else None, node.meta.get("spec")
        if source is None:
            source = viewed_node(node)
            while source is not None and (source.meta.get("spec") is not spec or source in self.skipped):
                source = viewed_node(source)
        if source is None or spec is None:
            return None if node in self.results else self._view_there(node)
        if node in self.results:
            owner = owner_of(source, self.same)
            if owner not in self.memory.own or owner in self.results:
                return None
            self.results.add(owner)
        return source

    def _is_read(self, node: fx.Node) -> bool:
        """Returns whether a value was read before: what is read twice is not written in between."""
        (tensor,) = node.args
        assert isinstance(tensor, fx.Node)
        there = self.views.setdefault((node.target, owner_of(tensor, self.same)), node)
        if there is not node:
            self.same[node] = there
        return there is not node

    def _view_there(self, node: fx.Node) -> fx.Node | None:
        """Returns a node that is the same view of the same tensor, also if that was written in the meantime."""
        viewed = viewed_node(node)
        if viewed is None or viewed is not node.args[0]:
            return None
        key = (node.target, owner_of(viewed, self.same), repr(node.args[1:]), repr(node.kwargs))
        return None if (there := self.views.setdefault(key, node)) is node else there

    def _put_off(self) -> Iterator[tuple[fx.Node, fx.Node]]:
        """Yields what is computed on the way to another node, and that node."""
        for node in self.nodes[: self.pure]:
            if node.op == "call_function":
                for part in _PARTS.get(node.target, _no_parts)(node):
                    yield part, node

    def _last(self) -> dict[fx.Node, int]:
        """Returns the last step in which each memory is read, by its root."""
        last: dict[fx.Node, int] = {}
        when: dict[fx.Node, int] = {}
        for node in reversed(self.nodes):
            when[node] = when[self.put_off[node]] if node in self.put_off else self.index[node]
            root = self.memory.root(node)
            reads = max((when[user] for user in node.users), default=-1)
            last[root] = max(last.get(root, -1), reads)
        return last

    def _exact(self) -> set[fx.Node]:
        """Returns the roots of memory whose layout is seen: of what the graph returns, and of what reads whole
        memory.
        """
        seen = [*self.nodes[-1].all_input_nodes, *(node.args[0] for node in self.nodes if node.target in STRIDED)]
        return {self.memory.root(node) for node in seen if isinstance(node, fx.Node)}

    def _is_free(self, node: object, by: fx.Node, *others: object, like: fx.Node | None = None) -> TypeGuard[fx.Node]:
        """Returns whether `by` may have the memory of `node` for what it makes (`like`), while it reads `others`."""
        memory, made = self.memory, like or by
        if not isinstance(node, fx.Node) or node not in memory.own:
            return False
        root = memory.root(node)
        if self.last[root] > self.index[by] or any(memory.root(x) is root for x in nodes_in(others)):
            return False
        if memory.root(made) not in self.exact:
            return look_alike(node, made)
        return node in memory.whole and node.meta.get("spec") is made.meta.get("spec")

    def _take(self, node: fx.Node, source: fx.Node) -> None:
        """Notes that `node` is the tensor that `source` was."""
        self.same[node] = source
        if source not in self.memory.whole:
            self.memory.whole.discard(node)

    def _write(self, node: fx.Node, into: fx.Node, call: Call) -> None:
        """Computes a node by a write into the tensor that another was."""
        self.steps.append((None, call))
        self._take(node, into)

    def _call(self, node: fx.Node) -> Call:
        """Returns the call that makes a node, with those in it that were put off."""

        def on_the_way(n: fx.Node) -> fx.Node | Call:
            return self._call(n) if n in self.put_off else n

        assert callable(node.target)
        args, kwargs = _map((node.args, dict(node.kwargs)), on_the_way)
        return Call(node.target, args, kwargs)

    def scatter(self, node: fx.Node) -> bool:
        """Plans `select_scatter` and its kin as a copy into a view of what is free."""
        base = node.args[0]
        if not self._is_free(base, node):
            return False
        written_over = node.args[1]
        if not isinstance(written_over, fx.Node):
            return False
        if written_over in self.put_off and written_over.target in OVERWRITING:
            call = self._call(written_over)
            self._write(node, base, Call(OVERWRITING[written_over.target], call.args, call.kwargs))
            return True
        target: fx.Node | Call = base
        part = node
        while True:
            target = Call(VIEW_OF[part.target], (target, *part.args[2:]), dict(part.kwargs))
            value = _input(part, 1)
            if value not in self.put_off:
                break
            if value.target is _aten.copy.default:
                value = _input(value, 1)
                break
            if value.target in OVERWRITING:  # of a part of a part, which the rest of what it reads may overlap
                return False
            part = value
        clash = self.memory.root(value) is self.memory.root(base)
        written = Call(_aten.clone.default, (value,)) if clash else value
        self._write(node, base, Call(_aten.copy_.default, (target, written)))
        return True

    def copy(self, node: fx.Node) -> bool:
        """Plans `copy(x, y)` as `y` itself if nobody else needs it, else as a write into `x` if nobody needs that."""
        into, source = node.args[:2]
        if self._is_free(source, node):
            self._take(node, source)
        elif self._is_free(into, node, source):
            self._write(node, into, Call(_aten.copy_.default, (into, source)))
        else:
            return False
        return True

    def clone(self, node: fx.Node) -> bool:
        """Plans a copy of what nobody else needs as that itself."""
        source = node.args[0]
        if not self._is_free(source, node):
            return False
        self._take(node, source)
        return True

    def add(self, node: fx.Node) -> bool:
        """Plans a sum with a gradient that is zero outside of a part as an addition to that part."""
        part = next((x for x in node.args if isinstance(x, fx.Node) and x in self.put_off), None)
        if part is None:
            return False
        total = node.args[0] if node.args[1] is part else node.args[1]
        gradient, _, *where = part.args
        if not self._is_free(total, node, gradient):
            return False
        target = Call(BACKWARD_OF[part.target], (total, *where))
        self._write(node, total, Call(_aten.add_.Tensor, (target, gradient)))
        return True

    def by_name(self, node: fx.Node) -> bool:
        """Returns an operator with a form that writes its first argument."""
        into = node.args[0]
        if not self._is_free(into, node, node.args[1:], list(node.kwargs.values())):
            return False
        self._write(node, into, Call(WRITING[node.target], self._call(node).args, dict(node.kwargs)))
        return True

    def overwrite(self, node: fx.Node) -> bool:
        """Returns a pointwise operator: its result is written over its first argument, or over a factor or term."""
        if node.target is _aten.add.Tensor and self.add(node):
            return True
        if any(isinstance(x, fx.Node) and x in self.put_off for x in node.args):
            return False
        args = node.args
        swaps = node.target in _COMMUTATIVE and len(args) == 2 and not node.kwargs
        for order in (args, args[::-1]) if swaps else (args,):
            others = [x for x in (*order[1:], *node.kwargs.values()) if x is not order[0]]
            if self._is_free(order[0], node, *others):
                self._write(node, order[0], Call(OVERWRITING[node.target], order, dict(node.kwargs)))
                return True
        return False

    def each(self, node: fx.Node) -> bool:
        """Plans a pointwise operator on a list as writes into its tensors, if nobody needs these later."""
        form = writing_form(node.target)
        if form is None or not form.is_pointwise:
            return False
        items, memory = items_of(node, form), self.memory
        into: Any = node.args[0]
        if items is None or len(items) < len(into):
            return False
        times = Counter(memory.root(x) for x in nodes_in((*node.args, *node.kwargs.values())) if not is_symint(x))
        for _, index, item in items:
            x = into[index]
            if not isinstance(x, fx.Node) or times[memory.root(x)] > 1 or not self._is_free(x, node, like=item):
                return False
        self.steps.append((None, Call(form.func, self._call(node).args, dict(node.kwargs))))
        for _, index, item in items:
            self._take(item, into[index])
        return True

    def _drop_unread(self, output: fx.Node) -> None:
        """Drops steps that only operators read that do not run."""
        read = {owner_of(n, self.same) for n in output.all_input_nodes}
        kept = []
        for node, call in reversed(self.steps):
            if node is None or node in read or not _may_be_dropped(node):
                kept.append((node, call))
                read.update(owner_of(n, self.same) for n in nodes_in((call,)))
        self.steps = kept[::-1]


def _map(value: object, f: Callable[[fx.Node], object]) -> Any:
    """Returns arguments with something else for each node; `fx.map_arg` takes nodes only."""
    if isinstance(value, fx.Node):
        return f(value)
    if isinstance(value, list | tuple):
        return tuple(_map(x, f) for x in value) if isinstance(value, tuple) else [_map(x, f) for x in value]
    if isinstance(value, slice):
        return slice(_map(value.start, f), _map(value.stop, f), _map(value.step, f))
    return {name: _map(x, f) for name, x in value.items()} if isinstance(value, dict) else value


def _input(node: fx.Node, position: int) -> fx.Node:
    """Returns an argument of an operator that its schema has as a tensor."""
    found = node.args[position]
    assert isinstance(found, fx.Node)
    return found


def _dtype_of(node: fx.Node) -> torch.dtype | None:
    spec = node.meta.get("spec")
    return None if spec is None else spec.dtype


def _writes(node: fx.Node) -> bool:
    return node.op == "call_function" and _torch.operators.is_overload(node.target) and effects_of(node.target).mutates


def _may_be_dropped(node: fx.Node) -> bool:
    """Returns whether an operator does nothing but compute."""
    if node.target is operator.getitem or is_symint(node):
        return True
    if not _torch.operators.is_overload(node.target) or node.target.namespace != "aten":
        return False
    effects = effects_of(node.target)
    return not effects.mutates and not effects.random and not must_run(node)


def _parts_of_scatter(node: fx.Node) -> Iterator[fx.Node]:
    """Yields what is written, where it was computed for this write only."""
    base, part = node.args[:2]
    if not isinstance(base, fx.Node) or not isinstance(part, fx.Node) or len(part.users) != 1 or part is base:
        return
    if part.target is _aten.copy.default and len(part.args) == 2 and not part.kwargs:
        if _dtype_of(part) is _dtype_of(node):
            yield part
    elif part.target in VIEW_OF:
        view = part.args[0]
        arguments = (base, *node.args[2:])
        if (
            isinstance(view, fx.Node)
            and view.target is VIEW_OF[node.target]
            and view.args == arguments
            and view.kwargs == node.kwargs
        ):
            yield part
    elif part.target in OVERWRITING and _is_over_its_place(part, node):
        yield part


def _is_over_its_place(part: fx.Node, scatter: fx.Node) -> bool:
    """Returns whether a pointwise operator reads the place that its result is written to, and nothing that overlaps it
    in part: as `x[0].add_(y)` is recorded.
    """
    base, own = _input(scatter, 0), part.args[0]
    whole, spec, made = plain_spec(base), plain_spec(own), plain_spec(part)
    if whole is None or spec is None or made is None or not isinstance(own, fx.Node) or not _is_view_of(own, base):
        return False
    if (made.size, made.dtype) != (spec.size, whole.dtype):
        return False
    if (spec.size, spec.stride, spec.offset) != _place(scatter, whole):
        return False
    others = nodes_in((*part.args[1:], *part.kwargs.values()))
    return all(other is own or not _is_view_of(other, base) or _are_parts(other, own) for other in others)


def _is_view_of(node: fx.Node, base: fx.Node) -> bool:
    while node is not base:
        viewed = viewed_node(node)
        if viewed is None:
            return False
        node = viewed
    return True


def _are_parts(one: fx.Node, other: fx.Node) -> bool:
    """Returns whether a tensor was split into these two, among others: they are the same or do not overlap."""
    a, b = _input(one, 0), _input(other, 0)
    if one.target is operator.getitem and other.target is operator.getitem:
        return a.target in _SPLITTING and (a.target, a.args, a.kwargs) == (b.target, b.args, b.kwargs)
    if a is not b or one.target is not _aten.slice.Tensor or other.target is not _aten.slice.Tensor:
        return False
    # From torch 2.15 on, functionalization writes the parts of a split that follow a write as slices.
    (dim, taken), (its_dim, its) = _taken(one), _taken(other)
    if dim != its_dim or taken is None or its is None:
        return False
    return taken == its or taken.stop <= its.start or its.stop <= taken.start


def _taken(part: fx.Node) -> tuple[object, range | None]:
    """Returns the dim that is sliced, and what of it is taken; None if not all are numbers."""
    of: Any = plain_spec(_input(part, 0))
    numbers: list[Any] = list(part.args[1:]) or [0]
    if of is None or part.kwargs or any(type(x) is not int and x is not None for x in (*numbers, *of.size)):
        return None, None
    dim, *where = numbers
    return dim % len(of.size), _range_of(where, of.size[dim])


def _range_of(numbers: list[Any], size: int) -> range:
    """Returns what of a dim is taken by a start, an end and a step, of which the last may be left out."""
    return range(size)[slice(*[*numbers, None, None, None][:3])]


def _place(scatter: fx.Node, whole: Spec) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Returns the size, stride and offset of what `select_scatter` or `slice_scatter` writes, if they are numbers."""
    numbers: list[Any] = list(scatter.args[2:]) or [0]
    if scatter.kwargs or any(type(x) is not int and x is not None for x in numbers):
        return None
    dim, *where = numbers
    size: list[Any] = list(whole.size)
    stride: list[Any] = list(whole.stride)
    if scatter.target is _aten.select_scatter.default:
        offset = whole.offset + where[0] % size[dim] * stride[dim]
        del size[dim], stride[dim]
    elif scatter.target is _aten.slice_scatter.default:
        taken = _range_of(where, size[dim])
        offset = whole.offset + taken.start * stride[dim]
        size[dim], stride[dim] = len(taken), stride[dim] * taken.step
    else:
        return None
    return tuple(size), tuple(stride), offset


def _parts_of_sum(node: fx.Node) -> Iterator[fx.Node]:
    """Yields a gradient that is zero outside of a part, and is computed for this sum only; of two the later one."""
    terms = [x for x in node.args if isinstance(x, fx.Node) and look_alike(x, node)]
    if node.kwargs or len(terms) < len(node.args):
        return
    found = [x for x in terms if x.target in BACKWARD_OF and len(x.users) == 1]
    if found and terms[0] is not terms[1]:
        part = max(found)
        if _dtype_of(_input(part, 0)) is _dtype_of(node):
            yield part


def _no_parts(node: fx.Node) -> Iterator[fx.Node]:
    return iter(())


def _never(planner: _Planner, node: fx.Node) -> bool:
    return False


_SPLITTING = {_aten.split.Tensor, _aten.split_with_sizes.default, _aten.unbind.int}
_COMMUTATIVE = {_aten.add.Tensor, _aten.mul.Tensor}
_PARTS: dict[object, Callable[[fx.Node], Iterator[fx.Node]]] = {
    **dict.fromkeys(VIEW_OF, _parts_of_scatter),
    _aten.add.Tensor: _parts_of_sum,
}
_IN_PLACE: dict[object, Callable[[_Planner, fx.Node], bool]] = {
    **dict.fromkeys(VIEW_OF, _Planner.scatter),
    **dict.fromkeys(WRITING, _Planner.by_name),
    _aten.copy.default: _Planner.copy,
    _aten.clone.default: _Planner.clone,
    **dict.fromkeys(OVERWRITING, _Planner.overwrite),
}
