"""Chooses which results of forward are saved for backward, and which of them backward computes again.

Note [Recomputation]
~~~~~~~~~~~~~~~~~~~~
Backward reads results of forward. Each of them is saved, which costs its bytes from then on, or recomputed from what is
there: from other tensors that backward reads anyway, and from smaller ones. The output of a norm follows from its input,
`silu(x) * y` from `x` and `y`, a float32 copy from what was cast. One pass over the graph, in its order, gives each node
a price: the fewest bytes that have to be saved, beside what is saved already, for backward to have it. A node that
backward reads is recomputed if its price is lower than its own bytes.

Only operators are recomputed that do little beside reading and writing memory (`is_cheap`), in chains of a few: a long
chain would be recomputed as a whole before the first of its results is used, and save nothing.

A compiler that fuses them into their readers does that for free, so there all of it is done. For one that runs operators
one by one, each of them is time. There recomputation may take a twentieth of the time of the graph, by a model of bytes
moved and of arithmetic, and what saves most bytes in its time comes first.

What eager mode does not keep for backward may be written before backward runs, which eager mode allows. So inputs are read
again only if backward reads them anyway, or if they are parameters and buffers and the compiler fuses.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot.passes.nodes import draws, is_backward, is_symint, viewed_by

_aten = torch.ops.aten

_SHARE = 0.05
"""The part of the time of a graph that recomputation may take where operators run one by one."""

_LONGEST_CHAIN = 12
"""The most operators that are recomputed one after the other."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What backward gets of forward.

    Attributes:
        saved: Forward nodes that are saved.
        recomputed: Forward nodes that backward runs again: views, and what is cheaper to compute than to keep.
    """

    saved: set[fx.Node] = field(default_factory=set)
    recomputed: set[fx.Node] = field(default_factory=set)


def choose(graph: fx.Graph, read: set[fx.Node], exact: set[fx.Node], static: set[fx.Node], fuses: bool) -> Choice:
    """Chooses what is saved and what is recomputed. See Note [Recomputation].

    Args:
        graph: A joint graph.
        read: The forward nodes that backward reads.
        exact: Those of `read` that are gradients themselves, which are given as they are.
        static: Inputs that nobody writes before backward.
        fuses: Whether the compiler runs cheap operators together with those that read them.
    """
    nodes = [n for n in graph.nodes if not is_backward(n) and n.op != "output"]
    if fuses:
        return _Chooser(nodes, read, exact, static).run(None)
    first = _Chooser(nodes, read, exact, set())
    first.run(None)
    budget = _SHARE * sum(_time_us(n) for n in graph.nodes)
    accepted = set()
    for node, (gain, time) in sorted(first.gains.items(), key=lambda item: item[1][1] / item[1][0]):
        if time <= budget:
            budget -= time
            accepted.add(node)
    return _Chooser(nodes, read, exact, set()).run(accepted)


class _Chooser:
    """One pass over the forward nodes of a graph."""

    def __init__(self, nodes: list[fx.Node], read: set[fx.Node], exact: set[fx.Node], static: set[fx.Node]) -> None:
        self.nodes = nodes
        self.read = {base_of(n) for n in read} | {n for n in read if n in exact}
        self.exact = {base_of(n) for n in exact}
        self.views = read
        self.static = static
        self.choice = Choice()
        self.price: dict[fx.Node, float] = {}  # bytes to save for a node
        self.time: dict[fx.Node, float] = {}  # microseconds to compute it from these
        self.length: dict[fx.Node, int] = {}  # of the longest chain of operators there
        self.gains: dict[fx.Node, tuple[float, float]] = {}  # of each that is recomputed: bytes saved, microseconds

    def run(self, accepted: set[fx.Node] | None) -> Choice:
        """Decides for each node.

        Args:
            accepted: The only nodes to recompute; None if there is no limit.
        """
        for node in self.nodes:
            self._visit(node, accepted)
        for node in self.views:
            self._need(node)
        return self.choice

    def _visit(self, node: fx.Node, accepted: set[fx.Node] | None) -> None:
        base = _base(node)
        if is_symint(node):
            self._set(node, 0, 0, 0)
        elif base is not None:
            self._set(node, self.price[base], self.time[base], self.length[base])
        elif node.op == "placeholder":
            free = node in self.read or node in self.static
            self._set(node, 0 if free else math.inf, 0, 0)
        elif node.op == "get_attr":
            self._set(node, 0, 0, 0)
        else:
            self._visit_operator(node, accepted)

    def _visit_operator(self, node: fx.Node, accepted: set[fx.Node] | None) -> None:
        own = _bytes(node)
        inputs = node.all_input_nodes
        price = sum(self.price[n] for n in inputs) if is_cheap(node) else math.inf
        length = 1 + max((self.length[n] for n in inputs), default=0)
        again = price < own and length <= _LONGEST_CHAIN and node not in self.exact
        time = _time_us(node) + sum(self.time[n] for n in inputs)
        if node not in self.read:
            self._set(node, price if again else own, time if again else 0, length if again else 0)
        elif again and (accepted is None or node in accepted):
            self.gains[node] = own - price, time
            self._recompute(node)
            self._set(node, 0, 0, length)
        else:
            self.choice.saved.add(node)
            self._set(node, 0, 0, 0)

    def _set(self, node: fx.Node, price: float, time: float, length: int) -> None:
        self.price[node], self.time[node], self.length[node] = price, time, length

    def _recompute(self, node: fx.Node) -> None:
        self.choice.recomputed.add(node)
        for source in node.all_input_nodes:
            self._need(source)

    def _need(self, node: fx.Node) -> None:
        """Has a node be there in backward."""
        todo = [node]
        saved, recomputed = self.choice.saved, self.choice.recomputed
        while todo:
            node = todo.pop()
            if node in saved or node in recomputed:
                continue
            is_view = _base(node) is not None
            if is_view or node.op == "get_attr" or (self.length[node] > 0 and not is_symint(node)):
                recomputed.add(node)
                todo.extend(node.all_input_nodes)
                continue
            saved.add(node)
            if node.op == "call_function":
                self._set(node, 0, 0, 0)


def base_of(node: fx.Node) -> fx.Node:
    """Returns the node that a chain of views begins with."""
    while (base := _base(node)) is not None:
        node = base
    return node


def _base(node: fx.Node) -> fx.Node | None:
    """What a node is a view of; None if it computes something."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        producer: Any = node.args[0]
        return producer if producer.target is not operator.getitem and viewed_by(producer) is not None else None
    if node.target is _aten._unsafe_view.default:
        return node.args[0]  # type: ignore[return-value]
    return viewed_by(node)


def is_cheap(node: fx.Node) -> bool:
    """Tells whether an operator does little beside reading its inputs and writing its result, and always the same."""
    if node.op != "call_function" or not _torch.is_overload(node.target) or draws(node):
        return False
    return torch.Tag.pointwise in node.target.tags and _is_pure(node.target) or node.target in _CHEAP


def _is_pure(func: Any) -> bool:
    from subclass_aot.operators import effects_of

    return effects_of(func).pure and len(effects_of(func).returns) == 1


_CHEAP = {
    getattr(getattr(_aten, name), overload)
    for name, overloads in {
        "_to_copy": ("default",),
        "arange": ("default", "start", "start_step"),
        "cat": ("default",),
        "constant_pad_nd": ("default",),
        "copy": ("default",),
        "full": ("default",),
        "full_like": ("default",),
        "ones": ("default",),
        "ones_like": ("default",),
        "repeat": ("default",),
        "scalar_tensor": ("default",),
        "select_scatter": ("default",),
        "slice_scatter": ("default",),
        "stack": ("default",),
        "tril": ("default",),
        "triu": ("default",),
        "zeros": ("default",),
        "zeros_like": ("default",),
    }.items()
    for overload in overloads
} | {torch.ops.prims.convert_element_type.default, torch.ops.prims.iota.default}
"""Operators that move memory, beside those that are pointwise."""


def _bytes(node: fx.Node) -> float:
    return sum(_size(spec) * spec.dtype.itemsize for spec in _specs(node))


def _specs(node: Any) -> Iterator[Any]:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    values: Iterable[Any] = value if isinstance(value, tuple | list) else (value,)
    return (spec for v in values if (spec := getattr(v, "spec", None)) is not None)


def _size(spec: Any) -> float:
    """Elements of a tensor; of a size that depends on data, a guess."""
    return math.prod(_known(n) for n in spec.size)


def _known(number: Any) -> int:
    try:
        return _torch.example_of(number)
    except TypeError:
        return _GUESS


_GUESS = 4096
_CALL_US, _BYTES_PER_US, _FLOPS_PER_US = 2.0, 10_000, 50_000
"""One core of a CPU, at the least: 10 GB/s and 50 GFLOP/s. Only ratios count, and elsewhere arithmetic is cheaper."""

_SLOW = {"gelu", "erf", "tanh", "exp", "silu", "sigmoid", "log", "pow", "mish", "softplus", "elu"}
"""Pointwise operators that take about four times as long as the memory that they move."""


def _time_us(node: fx.Node) -> float:
    """Microseconds that an operator takes, about."""
    if node.op != "call_function" or _base(node) is not None or is_symint(node) or node.target is operator.getitem:
        return 0.0
    inputs = [spec for n in node.all_input_nodes for spec in _specs(n)]
    moved = _bytes(node) + sum(_size(s) * s.dtype.itemsize for s in inputs)
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    return _CALL_US + moved * (4 if name in _SLOW else 1) / _BYTES_PER_US + _flops(name, node) / _FLOPS_PER_US


def _flops(name: str, node: fx.Node) -> float:
    """Floating-point operations of products, convolutions and attention; 0 for the rest, which memory bounds."""
    if name in _FACTOR:
        factor: Any = node.args[_FACTOR[name]]
        return 2 * sum(_size(result) * _known(spec.size[-1]) for result in _specs(node) for spec in _specs(factor))
    if name in _CONVOLUTION:
        result, weight, times = _CONVOLUTION[name]
        places: Any = node if result is None else node.args[result]
        return sum(
            2 * times * _size(place) * _size(spec) / max(1, _known(spec.size[0]))
            for place in _specs(places)
            for spec in _specs(node.args[weight])
        )
    if "attention" in name:
        query, times = (node.args[1], 10) if "backward" in name else (node.args[0], 4)
        return sum(times * _size(spec) * _known(spec.size[-2]) for spec in _specs(query))
    return 0.0


_FACTOR = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""Products, and the argument whose last dimension is summed over."""

_CONVOLUTION: dict[str, tuple[int | None, int, int]] = {"convolution": (None, 1, 1), "convolution_backward": (0, 2, 2)}
"""Convolutions: the argument that has the size of the result, the weight, and how many such products they are."""
