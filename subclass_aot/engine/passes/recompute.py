"""Chooses which results of forward are saved for backward, and which of them backward computes again.

Note [Recomputation]
~~~~~~~~~~~~~~~~~~~~
Backward reads results of forward. Each of them is saved, which costs its bytes from then on, or recomputed from what
is there: from other tensors that backward reads anyway, and from smaller ones. The output of a norm follows from its
input, `silu(x) * y` from `x` and `y`, a float32 copy from what was cast. One pass over the graph, in its order, gives
each node a price: the fewest bytes that have to be saved, beside what is saved already, for backward to have it. A node
that backward reads is recomputed if its price is lower than its own bytes.

What a checkpoint computes again in backward is a forward of its own: what gradients read of it long after it was
computed is kept or recomputed by the same rule.

Only operators are recomputed that do little beside reading and writing memory (`is_cheap`), in chains of a few: a long
chain would be recomputed as a whole before the first of its results is used, and save nothing. What `bernoulli` draws
is zeros and ones, so it is saved as booleans: a quarter of the bytes of a dropout mask.

A compiler that fuses them into their readers does that for free, so there all of it is done. For one that runs
operators one by one, each of them is time. There recomputation may take a twentieth of the time of the graph, by a
model of bytes moved and of arithmetic, and what saves most bytes in its time comes first.

What eager mode does not keep for backward may be written before backward runs, which eager mode allows. So inputs are
read again only if backward reads them anyway, or if they are parameters and buffers and the compiler fuses.

Here `mul`, which the second product reads in backward, is not saved: backward computes it again from `silu` and `mm`.

>>> import torch
>>> import subclass_aot as sa
>>> def show(graph, inputs):
...     print(graph.code)
...     return graph
>>> def f(x, w):
...     y = x @ w
...     return (torch.nn.functional.silu(y) * y) @ w
>>> compiled = sa.aot_compile(f, fw_compiler=show)
>>> y = compiled(torch.ones(64, 64), torch.ones(64, 64, requires_grad=True))
def forward(self, primals_1, primals_2):
    mm = torch.ops.aten.mm.default(primals_1, primals_2)
    silu = torch.ops.aten.silu.default(mm)
    mul = torch.ops.aten.mul.Tensor(silu, mm)
    mm_1 = torch.ops.aten.mm.default(mul, primals_2);  mul = None
    return (mm_1, primals_1, primals_2, mm, silu)
>>> print(compiled.source)
def call(...):
    ...
    ctx.save_for_backward(saved_0, saved_1, saved_2, saved_3)
    ...
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.passes.costs import Costs
from subclass_aot.engine.passes.nodes import draws, has_side_effect, is_backward, is_symint, must_run

_aten = torch.ops.aten

_SHARE = 0.05
"""The part of the time of a graph that recomputation may take where operators run one by one."""

_LONGEST_CHAIN = 12
"""The most operators that are recomputed one after the other."""

_NEAR = 8
"""Within so many operators a result of a checkpoint is read while it is there anyway."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The values of forward that backward gets.

    Attributes:
        saved: Nodes that are kept: of forward, saved for backward; of a checkpoint, alive until they are read.
        packed: Those of forward that are saved as booleans.
        recomputed: Nodes that run once more, just before what reads them: views, and what is cheaper to compute than to
            keep.
    """

    saved: set[fx.Node] = field(default_factory=set)
    packed: set[fx.Node] = field(default_factory=set)
    recomputed: set[fx.Node] = field(default_factory=set)


def choose(
    graph: fx.Graph, backward: set[fx.Node], gradients: Sequence[object], static: set[fx.Node], fuses: bool
) -> Choice:
    """Chooses what is saved and what is recomputed. See Note [Recomputation].

    Args:
        graph: A joint graph.
        backward: The backward nodes that are needed.
        gradients: What backward returns.
        static: Inputs that nobody writes before backward.
        fuses: Whether the compiler runs cheap operators together with those that read them.
    """
    costs = Costs(graph)
    region = _Region.of(graph, costs, backward, gradients)
    if fuses:
        return _Chooser(region, costs, static).run(None)
    first = _Chooser(region, costs, set())
    choice = first.run(None)
    budget = _SHARE * sum(costs.time_us.values())
    accepted = set()
    for node, (_, time) in sorted(first.gains.items(), key=lambda item: item[1][1] / item[1][0]):
        if time <= budget:
            budget -= time
            accepted.add(node)
    return choice if len(accepted) == len(first.gains) else _Chooser(region, costs, set()).run(accepted)


@dataclass(frozen=True, slots=True)
class _Region:
    """The nodes that are computed before gradients are: forward, and what checkpoints compute again in backward.

    Attributes:
        nodes: Its nodes, in order.
        read: Those that are read later: forward nodes by backward, nodes of a checkpoint by what computes gradients.
        exact: Forward nodes that are gradients themselves, which are given as they are.
    """

    nodes: list[fx.Node]
    read: set[fx.Node]
    exact: set[fx.Node]

    @staticmethod
    def of(graph: fx.Graph, costs: Costs, backward: set[fx.Node], gradients: Sequence[object]) -> _Region:
        """Finds it in a joint graph."""
        exact = {n for n in gradients if isinstance(n, fx.Node) and not is_backward(n)}
        forward = [n for n in graph.nodes if not is_backward(n) and n.op != "output"]
        again = recomputed_by_the_program(graph, backward)
        inputs, of_forward = costs.inputs, set(forward)
        read = exact | {n for node in backward for n in inputs[node] if n in of_forward}
        early = {costs.base(n) for node in again if costs.viewed[node] is None for n in inputs[node]}
        if early - of_forward:
            order = {node: i for i, node in enumerate(graph.nodes)}
            for node in backward - again:
                for n in inputs[node]:
                    if n in again and (base := costs.base(n)) in early and order[node] - order[base] > _NEAR:
                        read.add(n)
        return _Region(forward + [n for n in graph.nodes if n in again], read, exact)


def recomputed_by_the_program(graph: fx.Graph, backward: set[fx.Node]) -> set[fx.Node]:
    """Returns the needed backward nodes that depend on no tangent: what checkpoints compute again, and constants.

    Those that draw random numbers or must run are not among them, nor what depends on these: they stay where they are.
    """
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node not in backward or node.op == "placeholder":
            continue
        # What it reads comes first, since nearly all depend on a tangent.
        if any(n not in found and is_backward(n) for n in node.all_input_nodes) or draws(node) or must_run(node):
            continue
        found.add(node)
    return found


class _Chooser:
    """One pass over the nodes of a region."""

    def __init__(self, region: _Region, costs: Costs, static: set[fx.Node]) -> None:
        self.region = region
        self.costs = costs
        self.read = {costs.base(n) for n in region.read} | region.exact
        self.exact = {costs.base(n) for n in region.exact}
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
        for node in self.region.nodes:
            self._visit(node, accepted)
        for node in self.region.read:
            self._need(node)
        return self.choice

    def _visit(self, node: fx.Node, accepted: set[fx.Node] | None) -> None:
        base = self.costs.viewed[node]
        if is_symint(node):
            self._set(node, 0, 0, 0)
        elif base is not None:
            self._set(node, self.price[base], self.time[base], self.length[base])
        elif node.op == "placeholder":
            free = node in self.read or node in self.static
            self._set(node, 0 if free else math.inf, 0, 0)
        elif node.op == "get_attr":
            self._set(node, 0, 0, 0)
        elif node.target in _ZEROS_AND_ONES and node not in self.exact:
            self._visit_mask(node, accepted)
        else:
            self._visit_operator(node, accepted)

    def _visit_mask(self, node: fx.Node, accepted: set[fx.Node] | None) -> None:
        own, small = self.costs.num_bytes[node], self.costs.packed_bytes(node)
        if own <= small:
            self._visit_operator(node, accepted)
            return
        time = 2 * self.costs.cast_us(own + small)
        if node not in self.read:
            self._set(node, small, time, 0)
            return
        if accepted is None or node in accepted:
            self.gains[node] = own - small, time
            self.choice.packed.add(node)
        self.choice.saved.add(node)
        self._set(node, 0, 0, 0)

    def _visit_operator(self, node: fx.Node, accepted: set[fx.Node] | None) -> None:
        own = self.costs.num_bytes[node]
        inputs = self.costs.inputs[node]
        price, length, time = math.inf, 0, 0.0
        if is_cheap(node):
            price = sum([self.price[n] for n in inputs])
            length = 1 + max([self.length[n] for n in inputs], default=0)
            time = self.costs.time_us[node] + sum([self.time[n] for n in inputs])
        again = price < own and length <= _LONGEST_CHAIN and node not in self.exact
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
        for source in self.costs.inputs[node]:
            self._need(source)

    def _need(self, node: fx.Node) -> None:
        """Has a node be there in backward."""
        todo = [node]
        saved, recomputed = self.choice.saved, self.choice.recomputed
        while todo:
            node = todo.pop()
            if node in saved or node in recomputed:
                continue
            is_view = self.costs.viewed[node] is not None
            if is_view or node.op == "get_attr" or (self.length[node] > 0 and not is_symint(node)):
                recomputed.add(node)
                todo.extend(self.costs.inputs[node])
                continue
            saved.add(node)
            if node.op == "call_function":
                if (
                    node.target in _ZEROS_AND_ONES
                    and self.price[node] == self.costs.packed_bytes(node) < self.costs.num_bytes[node]
                ):
                    self.choice.packed.add(node)
                self._set(node, 0, 0, 0)


def is_cheap(node: fx.Node) -> bool:
    """Returns whether an operator does little beside reading its inputs and writing its result, and always the same."""
    if node.target is operator.getitem:  # one of several results
        return is_cheap(node.args[0])  # type: ignore[arg-type]
    return node.op == "call_function" and _is_cheap(node.target) and not has_side_effect(node)


@functools.cache
def _is_cheap(func: object) -> bool:
    if not _torch.operators.is_overload(func) or effects_of(func).random:
        return False
    is_pure = effects_of(func).pure and len(effects_of(func).returns) == 1
    return (torch.Tag.pointwise in func.tags and is_pure) or func in _CHEAP


_CHEAP = {
    getattr(getattr(_aten, name), overload)
    for name, overloads in {
        "_to_copy": ("default",),
        "arange": ("default", "start", "start_step"),
        "cat": ("default",),
        "copy": ("default",),
        "empty": ("memory_format",),
        "empty_like": ("default",),
        "full": ("default",),
        "full_like": ("default",),
        "native_group_norm": ("default",),
        "native_layer_norm": ("default",),
        "new_empty": ("default",),
        "new_ones": ("default",),
        "new_zeros": ("default",),
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
"""Operators that memory bounds, beside those that are pointwise.

Not `constant_pad_nd`: a convolution reads it, with which no compiler fuses it, so that each is a kernel more.
"""


_ZEROS_AND_ONES = {_aten.bernoulli.default, _aten.bernoulli.p, _aten.bernoulli.Tensor}
"""Operators whose results are zeros and ones, whatever their dtype is."""
