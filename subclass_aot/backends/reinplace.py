"""Which operators of a graph without writes may write after all, into memory that the graph itself made.

Note [Writes in place]
~~~~~~~~~~~~~~~~~~~~~~
Functionalization makes of a write into a part of a tensor a new tensor of full size, so that a loop that fills a tensor
row by row takes time quadratic in the number of rows. Backward has the same: each step copies the gradient, sets a part
of the copy to zero, and adds a gradient of full size that is zero outside of one part. For compilers that is the
right form. Where the graph runs operator by operator, such an operator writes into the memory of the tensor that it
takes apart, if nothing else reads that memory later:

- an operator of torch that always makes new memory made it: no input, no constant, and nothing of another library;
- no tensor on that memory is read later. Views are on the memory of what they view; what an unknown operator returns
  may be on that of any of its arguments. What the graph returns is read at its end, so results and what is saved for
  backward are safe, and what is kept for an operator that was put off is read there.

A tensor that takes over the memory of another is the only one alive on it. So it is enough to know until when the
tensors are read that share memory in the graph as it stands: linear time, and the graph itself is not changed. Results
are the same to the last bit, but that a gradient of -0.0 to which nothing is added keeps its sign.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot.meta import Spec
from subclass_aot.operators import effects_of
from subclass_aot.passes import is_symint

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator; arguments are nodes, values, and calls that nobody else needs the result of."""

    func: _torch.Operator
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run a graph.

    Attributes:
        steps: In order: a node with the call that makes it, or None and a call that writes.
        same: For nodes without a call: the node whose memory they take over, and with it the tensor.
    """

    steps: list[tuple[fx.Node | None, Call]]
    same: dict[fx.Node, fx.Node]


def plan_of(graph: fx.Graph) -> Plan:
    """How to run a graph with as few copies as can be."""
    return _Planner(graph).plan()


class _Planner:
    def __init__(self, graph: fx.Graph) -> None:
        self.nodes = list(graph.nodes)
        self.index = {node: i for i, node in enumerate(self.nodes)}
        self.pure = next((i for i, node in enumerate(self.nodes) if _writes(node)), len(self.nodes))
        self.put_off: dict[fx.Node, fx.Node] = {}  # to the node that computes it on the way
        self.memory: dict[fx.Node, fx.Node] = {}  # towards one node for all that may share memory
        self.own: set[fx.Node] = set()  # on memory that the graph made
        self.whole: set[fx.Node] = set()  # and no view of another tensor
        self.last: dict[fx.Node, int] = {}  # until when some memory is read
        self.steps: list[tuple[fx.Node | None, Call]] = []
        self.same: dict[fx.Node, fx.Node] = {}

    def plan(self) -> Plan:
        for node in self.nodes:
            self._share(node)
            if node.op == "call_function" and self.index[node] < self.pure:
                for part in _PARTS.get(node.target, _no_parts)(node):
                    self.put_off[part] = node
        self._live()
        output = self.nodes[-1]
        strided = [n.args[0] for n in self.nodes if n.target in _STRIDED]
        self.exact = {self._root(n) for n in (*output.all_input_nodes, *strided) if isinstance(n, fx.Node)}
        for node in self.nodes:
            if node.op == "call_function" and node not in self.put_off:
                if self.index[node] >= self.pure or not _IN_PLACE.get(node.target, _never)(self, node):
                    self.steps.append((node, self._call(node)))
        self._drop_unread(output)
        return Plan(self.steps, self.same)

    def _share(self, node: fx.Node) -> None:
        """Notes whose memory a node may be on."""
        self.memory[node] = node
        if node.op != "call_function" or is_symint(node):
            return
        sources: Any = node.all_input_nodes
        own = False
        if node.target is operator.getitem:
            sources = [node.args[0]]
            own = sources[0] in self.own
        elif _torch.is_overload(node.target):
            viewed = [place[0] for place in effects_of(node.target).returns_view_of if place is not None]
            if viewed:
                sources = [node.args[viewed[0]]]
                own = sources[0] in self.own
            elif _makes_new(node.target):
                sources, own = [], True
                self.whole.add(node)
        if own:
            self.own.add(node)
        for source in sources:
            if isinstance(source, fx.Node) and not is_symint(source):
                self.memory[self._root(source)] = self._root(node)

    def _root(self, node: fx.Node) -> fx.Node:
        root = node
        while self.memory[root] is not root:
            root = self.memory[root]
        while self.memory[node] is not root:
            self.memory[node], node = root, self.memory[node]
        return root

    def _live(self) -> None:
        """Notes until when each memory is read."""
        when: dict[fx.Node, int] = {}
        for node in reversed(self.nodes):
            when[node] = when[self.put_off[node]] if node in self.put_off else self.index[node]
            root = self._root(node)
            reads = max((when[user] for user in node.users), default=-1)
            self.last[root] = max(self.last.get(root, -1), reads)

    def _is_free(self, node: Any, by: fx.Node, *others: Any) -> bool:
        """Whether `by` may have the memory of `node`, while it reads `others`."""
        if not isinstance(node, fx.Node) or node not in self.own:
            return False
        root = self._root(node)
        if self.last[root] > self.index[by] or any(self._root(x) is root for x in nodes_in(others)):
            return False
        if self._root(by) not in self.exact:
            return _look_alike(node, by)
        return node in self.whole and node.meta.get("spec") is by.meta.get("spec")

    def _take(self, node: fx.Node, source: fx.Node) -> None:
        """From here on `node` is the tensor that `source` was."""
        self.same[node] = source
        if source not in self.whole:
            self.whole.discard(node)

    def _call(self, node: Any) -> Call:
        """The call that makes a node, with those in it that were put off."""

        def on_the_way(n: fx.Node) -> Any:
            return self._call(n) if n in self.put_off else n

        args, kwargs = _map((node.args, dict(node.kwargs)), on_the_way)
        return Call(node.target, args, kwargs)

    def scatter(self, node: Any) -> bool:
        """`select_scatter` and its kin: a copy into a view of what is free."""
        base = node.args[0]
        if not self._is_free(base, node):
            return False
        target, part = base, node
        while True:
            target = Call(_VIEW_OF[part.target], (target, *part.args[2:]), dict(part.kwargs))
            value = part.args[1]
            if value not in self.put_off:
                break
            if value.target is _aten.copy.default:
                value = value.args[1]
                break
            part = value
        if self._root(value) is self._root(base):
            value = Call(_aten.clone.default, (value,))
        self.steps.append((None, Call(_aten.copy_.default, (target, value))))
        self._take(node, base)
        return True

    def copy(self, node: Any) -> bool:
        """`copy(x, y)`: `y` itself if nobody else needs it, else written into `x` if nobody needs that."""
        into, source = node.args[:2]
        if self._is_free(source, node):
            self._take(node, source)
        elif self._is_free(into, node, source):
            self.steps.append((None, Call(_aten.copy_.default, (into, source))))
            self._take(node, into)
        else:
            return False
        return True

    def clone(self, node: Any) -> bool:
        """A copy of what nobody else needs is that itself."""
        if not self._is_free(node.args[0], node):
            return False
        self._take(node, node.args[0])
        return True

    def add(self, node: Any) -> bool:
        """A gradient that is zero outside of a part is added to that part."""
        part = next((x for x in node.args if x in self.put_off), None)
        if part is None:
            return False
        total = node.args[0] if node.args[1] is part else node.args[1]
        gradient, _, *where = part.args
        if not self._is_free(total, node, gradient):
            return False
        target = Call(_BACKWARD_OF[part.target], (total, *where))
        self.steps.append((None, Call(_aten.add_.Tensor, (target, gradient))))
        self._take(node, total)
        return True

    def by_name(self, node: Any) -> bool:
        """An operator with a form that writes its first argument."""
        if not self._is_free(node.args[0], node, node.args[1:], list(node.kwargs.values())):
            return False
        self.steps.append((None, Call(_WRITING[node.target], self._call(node).args, dict(node.kwargs))))
        self._take(node, node.args[0])
        return True

    def _drop_unread(self, output: fx.Node) -> None:
        """Leaves out what only operators read that do not run."""
        read = {owner_of(n, self.same) for n in output.all_input_nodes}
        kept = []
        for node, call in reversed(self.steps):
            if node is None or node in read or not _may_be_dropped(node):
                kept.append((node, call))
                read.update(owner_of(n, self.same) for n in nodes_in((call,)))
        self.steps = kept[::-1]


def owner_of(node: fx.Node, same: dict[fx.Node, fx.Node]) -> fx.Node:
    """The node whose tensor a node is."""
    path = []
    while node in same:
        path.append(node)
        node = same[node]
    for passed in path:
        same[passed] = node
    return node


def nodes_in(values: Any) -> Iterator[fx.Node]:
    """Nodes among values, in calls and containers too."""
    for value in values:
        if isinstance(value, fx.Node):
            yield value
        elif isinstance(value, Call):
            yield from nodes_in((*value.args, *value.kwargs.values()))
        elif isinstance(value, list | tuple):
            yield from nodes_in(value)
        elif isinstance(value, slice):
            yield from nodes_in((value.start, value.stop, value.step))


def _map(value: Any, f: Callable[[fx.Node], Any]) -> Any:
    """Arguments with something else for each node; `fx.map_arg` takes nodes only."""
    if isinstance(value, fx.Node):
        return f(value)
    if isinstance(value, list | tuple):
        return tuple(_map(x, f) for x in value) if isinstance(value, tuple) else [_map(x, f) for x in value]
    if isinstance(value, slice):
        return slice(_map(value.start, f), _map(value.stop, f), _map(value.step, f))
    return {name: _map(x, f) for name, x in value.items()} if isinstance(value, dict) else value


def _look_alike(one: fx.Node, other: fx.Node) -> bool:
    """Whether two nodes have the same sizes, strides and dtype; one that is expanded is like no result."""
    a, b = one.meta.get("spec"), other.meta.get("spec")
    if not isinstance(a, Spec) or not isinstance(b, Spec):
        return False
    if a.solver is not None or b.solver is not None:
        return a.equals(b)
    return (a.size, a.stride, a.dtype, a.device) == (b.size, b.stride, b.dtype, b.device)


def _dtype_of(node: fx.Node) -> torch.dtype | None:
    spec = node.meta.get("spec")
    return None if spec is None else spec.dtype


def _writes(node: fx.Node) -> bool:
    return node.op == "call_function" and _torch.is_overload(node.target) and effects_of(node.target).mutates


def _makes_new(func: _torch.Operator) -> bool:
    """Whether what an operator returns is on new memory, whatever it is given."""
    effects = effects_of(func)
    if func.namespace != "aten" or effects.composite or not effects.pure:
        return False
    return not {torch.Tag.core, torch.Tag.pointwise}.isdisjoint(func.tags) or func in _NEW


def _may_be_dropped(node: Any) -> bool:
    """Whether an operator does nothing but compute."""
    if node.target is operator.getitem or is_symint(node):
        return True
    if not _torch.is_overload(node.target) or node.target.namespace != "aten":
        return False
    effects = effects_of(node.target)
    return not effects.mutates and not effects.random


def _parts_of_scatter(node: Any) -> Iterator[fx.Node]:
    """What is written, where it was computed for this write only."""
    base, part = node.args[:2]
    if len(part.users) != 1 or part is base:
        return
    if part.target is _aten.copy.default and len(part.args) == 2 and not part.kwargs:
        if _dtype_of(part) is _dtype_of(node):
            yield part
    elif part.target in _VIEW_OF:
        view = part.args[0]
        arguments = (base, *node.args[2:])
        if view.target is _VIEW_OF[node.target] and view.args == arguments and view.kwargs == node.kwargs:
            yield part


def _parts_of_sum(node: Any) -> Iterator[fx.Node]:
    """A gradient that is zero outside of a part, and is computed for this sum only; of two the later one."""
    if node.kwargs or not all(isinstance(x, fx.Node) and _look_alike(x, node) for x in node.args):
        return
    found = [x for x in node.args if x.target in _BACKWARD_OF and len(x.users) == 1]
    if found and node.args[0] is not node.args[1]:
        part = max(found)
        if _dtype_of(part.args[0]) is _dtype_of(node):
            yield part


def _no_parts(node: fx.Node) -> Iterator[fx.Node]:
    return iter(())


def _never(planner: _Planner, node: fx.Node) -> bool:
    return False


_VIEW_OF = {
    _aten.select_scatter.default: _aten.select.int,
    _aten.slice_scatter.default: _aten.slice.Tensor,
    _aten.diagonal_scatter.default: _aten.diagonal.default,
}
"""The view that an operator writes into."""

_BACKWARD_OF = {
    _aten.select_backward.default: _aten.select.int,
    _aten.slice_backward.default: _aten.slice.Tensor,
}
"""The view whose gradient an operator computes."""

_WRITING = {
    getattr(getattr(_aten, name), overload): getattr(getattr(_aten, f"{name}_"), overload)
    for name, overloads in {
        "index_put": ("default",),
        "index_copy": ("default",),
        "index_add": ("default",),
        "index_fill": ("int_Scalar", "int_Tensor"),
        "scatter": ("src", "value"),
        "scatter_add": ("default",),
        "scatter_reduce": ("two",),
        "masked_fill": ("Scalar", "Tensor"),
        "masked_scatter": ("default",),
        "fill": ("Scalar", "Tensor"),
    }.items()
    for overload in overloads
}
"""Operators that change a part of their first argument, and their forms that write it."""

_PARTS = {**dict.fromkeys(_VIEW_OF, _parts_of_scatter), _aten.add.Tensor: _parts_of_sum}
_IN_PLACE = {
    **dict.fromkeys(_VIEW_OF, _Planner.scatter),
    **dict.fromkeys(_WRITING, _Planner.by_name),
    _aten.copy.default: _Planner.copy,
    _aten.clone.default: _Planner.clone,
    _aten.add.Tensor: _Planner.add,
}
_NEW = {
    *_VIEW_OF,
    *_BACKWARD_OF,
    *_WRITING,
    *(
        getattr(_aten, name).default
        for name in (
            "zeros", "ones", "new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided", "zeros_like",
            "ones_like", "empty_like", "sum", "mv", "dot", "addmv", "baddbmm", "stack",
        )
    ),
}  # fmt: skip
"""Operators that return new memory, beside those of which their tags say it."""

_STRIDED = {_aten.as_strided.default, _aten.as_strided_scatter.default, _aten.as_strided_copy.default}
"""Operators that reach all of the memory of a tensor."""
