"""Estimates what a node costs: bytes of its result, and microseconds to compute it.

Only ratios of such estimates are used, to choose what is recomputed. The figures are those of one core of a CPU, at the
least; where arithmetic is cheaper beside memory, recomputation is cheaper than estimated.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.engine.passes.nodes import is_symint, viewed_node
from subclass_aot.meta import MetaTensor, Spec

_CALL_US = 2.0
_BYTES_PER_US = 10_000
_FLOPS_PER_US = 50_000
_GUESS = 4096
"""Elements along a dimension whose size depends on data."""


class Costs:
    """The costs of the nodes of a graph. Each is computed once.

    Attributes:
        viewed: For each node, the node whose memory it has; None if its memory is new.
        inputs: For each node, the nodes that it reads.
        num_bytes: For each node, the bytes of its result.
        time_us: For each node, about how many microseconds it takes to run.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.viewed: dict[fx.Node, fx.Node | None] = {}
        self.inputs: dict[fx.Node, list[fx.Node]] = {}
        self.num_bytes: dict[fx.Node, float] = {}
        self.time_us: dict[fx.Node, float] = {}
        self._of_spec: dict[Any, float] = {}
        for node in graph.nodes:
            self._add(node)

    def base(self, node: fx.Node) -> fx.Node:
        """Returns the node that a chain of views begins with."""
        while (viewed := self.viewed[node]) is not None:
            node = viewed
        return node

    def packed_bytes(self, node: fx.Node) -> float:
        """Returns the bytes of a result as booleans."""
        return sum((_size(spec) for spec in _specs(node)), 0.0)

    def cast_us(self, num_bytes: float) -> float:
        """Returns the microseconds of a copy that reads and writes so many bytes."""
        return _CALL_US + num_bytes / _BYTES_PER_US

    def _add(self, node: fx.Node) -> None:
        inputs = self.inputs[node] = node.all_input_nodes
        viewed = self.viewed[node] = viewed_node(node)
        own = self.num_bytes[node] = sum(map(self._bytes, _specs(node)))
        if node.op != "call_function" or viewed is not None or node.target is operator.getitem or is_symint(node):
            self.time_us[node] = 0.0
            return
        moved = own + sum([self.num_bytes[n] for n in inputs])
        packet = getattr(node.target, "overloadpacket", None)
        name = "" if packet is None else packet.__name__
        time = _CALL_US + moved * (4 if name in _SLOW else 1) / _BYTES_PER_US
        self.time_us[node] = time + (_flops(name, node) / _FLOPS_PER_US if name in _COUNTED else 0.0)

    def _bytes(self, spec: Any) -> float:
        found = self._of_spec.get(spec)
        if found is None:
            found = self._of_spec[spec] = _size(spec) * spec.dtype.itemsize
        return found


def _specs(node: object) -> list[Spec]:
    """Returns the specs of the tensors that a node gives."""
    if not isinstance(node, fx.Node):
        return []
    if "spec" in node.meta:
        return [node.meta["spec"]]
    value = dict.get(
        node.meta, "val"
    )  # as it is: fake tensors are not made for this, and are there in graphs of others
    several = value if isinstance(value, tuple | list) else ()
    return [v.meta_spec if isinstance(v, MetaTensor) else Spec.of(v) for v in several if isinstance(v, torch.Tensor)]


def _size(spec: Any) -> float:
    """Returns the elements of a tensor."""
    return float(math.prod([_known(n) for n in spec.size] if spec.solver is not None else spec.size))


def _known(number: Any) -> int:
    try:
        return _torch.symbolic.example_of(number)
    except TypeError:
        return _GUESS


_SLOW = {"gelu", "erf", "tanh", "exp", "silu", "sigmoid", "log", "pow", "mish", "softplus", "elu"}
"""Pointwise operators that take about four times as long as the memory that they move."""


def _flops(name: str, node: fx.Node) -> float:
    """Returns the floating-point operations of products, convolutions and attention; 0 for the rest, which memory
    bounds.
    """
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
    if name in _ATTENTION:
        query, times = (node.args[1], 10) if "backward" in name else (node.args[0], 4)
        return sum(times * _size(spec) * _known(spec.size[-2]) for spec in _specs(query))
    return 0.0


_FACTOR = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""Products, and the argument whose last dimension is summed over."""

_CONVOLUTION: dict[str, tuple[int | None, int, int]] = {"convolution": (None, 1, 1), "convolution_backward": (0, 2, 2)}
"""Convolutions: the argument that has the size of the result, the weight, and how many such products they are."""

_ATTENTION = {
    f"_scaled_dot_product_{kind}{suffix}"
    for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
    for suffix in ("", "_backward")
}
_COUNTED = {*_FACTOR, *_CONVOLUTION, *_ATTENTION}
"""Operators whose arithmetic counts beside the memory that they move."""
