"""Symbolic sizes as nodes of a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.meta import MetaTensor, Spec
from subclass_aot.meta.symbols import is_symbolic, plain

if TYPE_CHECKING:  # comes with the first symbol
    import sympy

_SIZE = torch.ops.aten.sym_size.int
_STRIDE = torch.ops.aten.sym_stride.int


class SymintNodes:
    """The nodes that compute symbolic numbers, each expression once.

    A symbol is read where it was first seen: from the size of a graph input, or from the operator that made it.

    Args:
        graph: Where nodes are added.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self._tracer = fx.proxy.GraphAppendingTracer(graph)
        self._nodes: dict[Any, fx.Node] = {}
        self._unbacked: dict[Any, Any] = {}
        self._sources: dict[Any, tuple[fx.Node, Any, int, int]] = {}

    def copy(self) -> SymintNodes:
        """Returns the same, which later nodes are not added to."""
        symints = SymintNodes(self.graph)
        symints._nodes, symints._sources = dict(self._nodes), dict(self._sources)
        symints._unbacked = dict(self._unbacked)
        return symints

    def give(self, number: _torch.symbolic.Symbolic, node: fx.Node) -> None:
        """Registers `node` as what computes `number`."""
        self._nodes.setdefault(_torch.symbolic.original_expression_of(number), node)
        self._nodes.setdefault(_torch.symbolic.expression_of(number), node)

    def made(self, symints: list[Any], leaves: Sequence[Any], places: dict[Any, tuple[int, int, int]]) -> None:
        """Marks symbols as unbacked. They are always read from the graph, even if `torch._check` pins them to a
        constant, so that the runtime assert can fail.

        Args:
            symints: What an operator made.
            leaves: Its results.
            places: Of each number, the result and the dimension whose size it is, and how many times that has it.
                Filled when the operator is recorded; when it is replayed, the number may be known, and the size is a
                symbol no more.
        """
        sizes = [
            (_torch.symbolic.symbol_and_factor(_torch.symbolic.original_expression_of(size)), (position, dim))
            for position, leaf in enumerate(leaves)
            if type(leaf) is MetaTensor
            for dim, size in enumerate(leaf.meta_spec.size)
            if is_symbolic(size)
        ]
        for (symbol, factor), place in sorted(sizes, key=lambda size: size[0][1]):
            places.setdefault(symbol, (*place, factor))
        for number in symints:
            symbol = _torch.symbolic.original_expression_of(number)
            self._unbacked[symbol] = number
            if symbol in places:
                position, dim, factor = places[symbol]
                self._sources.setdefault(symbol, (leaves[position].meta_tag, _SIZE, dim, factor))

    def unbacked(self) -> list[Any]:
        """Returns the numbers that depend on data, and that a node gives, or can be read from one."""
        return [n for symbol, n in self._unbacked.items() if symbol in self._nodes or symbol in self._sources]

    def offer(self, spec: Spec, node: fx.Node) -> None:
        """Registers a tensor as one from which the symbols among its sizes and strides can be read."""
        for reader, numbers in (_SIZE, spec.size), (_STRIDE, spec.stride):
            for dim, number in enumerate(numbers):
                if is_symbolic(number):
                    self._sources.setdefault(_torch.symbolic.original_expression_of(number), (node, reader, dim, 1))
                    self._sources.setdefault(_torch.symbolic.expression_of(number), (node, reader, dim, 1))

    def node(self, number: _torch.symbolic.Symbolic, describe: Callable[[fx.Node], None]) -> Any:
        """Returns the node that computes `number`, or the number itself if it is known after all.

        Args:
            number: A symbolic number.
            describe: Notes on a new node the phase and the line of the user to which it belongs.
        """
        original = _torch.symbolic.original_expression_of(number)
        if original in self._unbacked:
            return self._nodes.get(original) or self._read(original, describe)
        number = plain(number)
        if not is_symbolic(number):
            return number
        expression = _torch.symbolic.expression_of(number)
        if expression in self._nodes:
            return self._nodes[expression]
        if expression in self._sources:
            return self._read(expression, describe)
        nodes = {s: self._nodes.get(s) or self._read(s, describe) for s in expression.free_symbols}
        symbols = {s: fx.Proxy(node, self._tracer) for s, node in nodes.items()}
        last = next(iter(reversed(self.graph.nodes)))
        result: Any = _torch.symbolic.evaluate(expression, symbols)
        if not isinstance(result, fx.Proxy):
            return result
        for node in self._after(last):
            args: Any = fx.map_arg(node.args, lambda n: n.meta["val"])
            node.meta["val"] = _computed(node.target, *args)
            describe(node)
        self._nodes[expression] = result.node
        return result.node

    def _read(self, expression: sympy.Basic, describe: Callable[[fx.Node], None]) -> fx.Node:
        """Reads a number from the tensor that offers it; forward does, since backward has the tensor no more."""
        source, reader, dim, factor = self._sources[expression]
        spec: Spec = source.meta["spec"]
        read = (spec.size if reader is _SIZE else spec.stride)[dim]
        number = self._unbacked.get(expression, read)
        made = [(self.graph.call_function(reader, (source, dim)), number if factor == 1 else read)]
        if factor != 1:
            made.append((self.graph.call_function(operator.floordiv, (made[0][0], factor)), number))
        for node, val in made:
            node.meta["val"] = val
            describe(node)
            node.meta["partitioner_tag"] = source.meta["partitioner_tag"]
        self._nodes[expression] = node
        return node

    def _after(self, last: fx.Node) -> list[fx.Node]:
        """Returns the nodes that came after `last`."""
        made: list[fx.Node] = []
        for node in reversed(self.graph.nodes):
            if node is last:
                break
            made.append(node)
        return made[::-1]


def _computed(function: Any, *numbers: Any) -> Any:
    """Computes a number. That the base of a power is positive, a call checks where the program has computed that."""
    is_power = function is operator.pow and type(numbers[0]) is torch.SymFloat
    return _torch.exact_floats.power(*numbers) if is_power else function(*numbers)


def reads_size(node: fx.Node) -> bool:
    """Returns True if a node reads a size or a stride of a tensor."""
    return node.target in (_SIZE, _STRIDE)
