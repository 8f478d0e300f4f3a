"""Adapts graphs for inductor: symbolic sizes, entangled writes, strides.

Note [Sizes of inputs]
~~~~~~~~~~~~~~~~~~~~~~
What inductor assumes of symbolic sizes while it compiles, it keeps with the graph in its cache, and assumes again for a
program that finds the graph there: but only what it assumes of numbers that are inputs, as of a graph that Dynamo has
made each symbol is. So a graph for inductor gets an input more for each symbol that is only in the sizes of tensors.

Note [Entangled writes]
~~~~~~~~~~~~~~~~~~~~~~~
Inductor (torch 2.13) takes a `clone` out of a graph even if what it copies is written before the copy is read: after
`old = x.clone(); x.copy_(y); y.copy_(old)` both are `y`. Where a graph writes what another written input was, it
returns the new values instead, and they are written once it has run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.node import Argument

from subclass_aot.base import _torch
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.meta.symbols import is_symbolic
from subclass_aot.tensors.products import fastest

aten: Any = torch.ops.aten


class Sizes(NamedTuple):
    """Inputs that a graph gets for inductor, after its own. See Note [Sizes of inputs].

    Attributes:
        places: For each input, a size that has it: of which input, in which dimension, and how many times.
        numbers: What stands for each.
        is_complete: Whether each symbol in a size is an input now.
    """

    places: list[tuple[int, int, int]]
    numbers: list[Any]
    is_complete: bool


def sizes_to_pass(inputs: Sequence[object]) -> Sizes:
    """Returns the symbols in the sizes of inputs that are no inputs themselves.

    Args:
        inputs: Tensors without data, and numbers.
    """
    given = {_torch.symbolic.expression_of(x) for x in inputs if isinstance(x, torch.SymInt)}
    found: dict[Any, tuple[int, int, int]] = {}
    needed: set[Any] = set()
    for position, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            continue
        shape: tuple[Any, ...] = tensor.shape
        for dim, size in enumerate(shape):
            if not is_symbolic(size):
                continue
            symbol, factor = _torch.symbolic.symbol_and_factor(_torch.symbolic.expression_of(size))
            if symbol.is_Symbol and symbol not in given and (symbol not in found or factor < found[symbol][2]):
                found[symbol] = position, dim, factor
        for number in (*shape, *tensor.stride(), tensor.storage_offset()):
            if is_symbolic(number):
                needed |= _torch.symbolic.expression_of(number).free_symbols
    places = list(found.values())
    numbers = [inputs[i].shape[dim] // factor for i, dim, factor in places]  # type: ignore[attr-defined]
    return Sizes(places, numbers, needed <= given | found.keys())


def take_sizes(graph: fx.GraphModule, sizes: Sizes) -> None:
    """Gives a graph more inputs, which nothing reads."""
    if not sizes.numbers:
        return
    last = graph.graph.find_nodes(op="placeholder")[-1]
    with graph.graph.inserting_after(last):
        for number in reversed(sizes.numbers):
            node = graph.graph.placeholder(f"size_of_input_{number}")
            node.meta["val"] = number
    graph.recompile()


def given_sizes(run: Callable[[list[Any]], Any], sizes: Sizes) -> Callable[[list[Any]], Any]:
    """Returns `run`, changed to compute from its inputs the sizes that it takes after them."""
    places = sizes.places

    def run_with_sizes(inputs: list[Any]) -> Any:
        inputs += [inputs[i].shape[dim] // factor for i, dim, factor in places]
        return run(inputs)

    return run_with_sizes if places else run


_COPIES: dict[Any, tuple[int, str]] = {
    aten.clone.default: (0, "self"),
    aten._to_copy.default: (0, "self"),
    aten.copy.default: (1, "src"),
}
"""Operators whose result has the values of an argument, and its position and name."""


def take_entangled_writes(graph: fx.GraphModule) -> list[int]:
    """Changes a graph so that a compiler may order its writes as it likes. See Note [Entangled writes].

    Args:
        graph: A forward graph, with its writes at the end.

    Returns:
        The positions of inputs into which new values are to be written, which the graph returns now after its other
        outputs.
    """
    writes = [n for n in graph.graph.nodes if n.target is aten.copy_.default and _is_input(n.args[0])]
    written = {n.args[0] for n in writes}
    if not any(_origin(n.args[1]) in written - {n.args[0]} for n in writes):
        return []
    inputs = graph.graph.find_nodes(op="placeholder")
    output = graph.graph.output_node()
    output.args = ((*output.args[0], *(n.args[1] for n in writes)),)  # type: ignore[misc]
    positions = [inputs.index(n.args[0]) for n in writes]
    for node in writes:
        graph.graph.erase_node(node)
    graph.recompile()
    return positions


def _is_input(node: Argument) -> bool:
    return isinstance(node, fx.Node) and node.op == "placeholder"


def then_write(run: Callable[[list[Any]], Any], positions: list[int]) -> Callable[[list[Any]], Any]:
    """Returns `run`, changed to write its last outputs into the inputs at `positions`."""

    def run_and_write(inputs: list[Any]) -> Any:
        targets = [inputs[i] for i in positions]
        outputs = list(run(inputs))
        for target, value in zip(targets, outputs[-len(positions) :], strict=True):
            target.copy_(value)
        return outputs[: -len(positions)]

    return run_and_write if positions else run


def take_casts(graph: fx.Graph) -> None:
    """Replaces casts, which a partition puts in, by the operator that inductor expects in their place.

    Args:
        graph: A graph whose other operators are in the form that inductor expects. It is changed.
    """
    for node in graph.find_nodes(op="call_function", target=aten._to_copy.default):
        if len(node.args) == 1 and node.kwargs.keys() == {"dtype"}:
            node.target, node.args, node.kwargs = _CAST, (node.args[0], node.kwargs["dtype"]), {}


_CAST: Any = torch.ops.prims.convert_element_type.default


def take_fastest(graph: fx.Graph) -> None:
    """Replaces products by operators that have a faster kernel than inductor has.

    Of several rows, it may tune some itself where dense products are fast.

    Args:
        graph: It is changed.
    """
    takes_all = not _torch.quantized.DENSE_IS_FAST[torch.bfloat16]
    for node in graph.nodes:
        func = fastest(node.target)
        if func is not node.target and (takes_all or node.args[0].meta["val"].shape[0] == 1):
            node.target = func


def _origin(node: Argument) -> Argument:
    """Returns the node whose values, moved and copied, a node has."""
    while isinstance(node, fx.Node) and node.op == "call_function" and _torch.operators.is_overload(node.target):
        viewed = next((v for v in effects_of(node.target).returns_view_of if v is not None), None)
        place = _COPIES.get(node.target, viewed)
        if place is None:
            break
        node = argument_at(place, node.args, node.kwargs)
    return node
