"""Estimates what a node costs: bytes of its result, and microseconds to compute it.

Only ratios of such estimates are used, to choose what is recomputed. The figures are those of one core of a CPU, at the
least; where arithmetic is cheaper beside memory, recomputation is cheaper than estimated.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any

from torch import fx

from subclass_aot import _torch
from subclass_aot.passes.nodes import base_of, is_symint

_CALL_US = 2.0
_BYTES_PER_US = 10_000
_FLOPS_PER_US = 50_000
_GUESS = 4096
"""Elements along a dimension whose size depends on data."""


def packed_bytes_of(node: fx.Node) -> float:
    """Returns the bytes of a result as booleans."""
    return sum((_size(spec) for spec in _specs(node)), 0.0)


def bytes_of(node: fx.Node) -> float:
    """Returns the bytes of a result."""
    return sum((_size(spec) * spec.dtype.itemsize for spec in _specs(node)), 0.0)


def _specs(node: Any) -> Iterator[Any]:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    values: Iterable[Any] = value if isinstance(value, tuple | list) else (value,)
    return (spec for v in values if (spec := getattr(v, "spec", None)) is not None)


def _size(spec: Any) -> float:
    """Returns the elements of a tensor."""
    return float(math.prod(_known(n) for n in spec.size))


def _known(number: Any) -> int:
    try:
        return _torch.example_of(number)
    except TypeError:
        return _GUESS


_SLOW = {"gelu", "erf", "tanh", "exp", "silu", "sigmoid", "log", "pow", "mish", "softplus", "elu"}
"""Pointwise operators that take about four times as long as the memory that they move."""


def cast_us(num_bytes: float) -> float:
    """Returns the microseconds of a copy that reads and writes so many bytes."""
    return _CALL_US + num_bytes / _BYTES_PER_US


def time_us(node: fx.Node) -> float:
    """Returns the microseconds that an operator takes, about."""
    if node.op != "call_function" or base_of(node) is not node or is_symint(node) or node.target is operator.getitem:
        return 0.0
    inputs = [spec for n in node.all_input_nodes for spec in _specs(n)]
    moved: float = bytes_of(node) + sum(_size(s) * s.dtype.itemsize for s in inputs)
    name = str(getattr(getattr(node.target, "overloadpacket", None), "__name__", ""))
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
