"""Saves the symbols that the sizes of backward's inputs are made of.

A tangent of size `s + 3` does not show what `s` is, and compilers want each symbol as an input, or as a size of one. A
partition saves the numbers that backward computes with, and these are not all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.engine.passes.nodes import is_symint
from subclass_aot.meta.symbols import is_symbolic


def save_symbols(forward: fx.Graph, backward: fx.Graph) -> None:
    """Gives backward each symbol that it cannot read off its inputs, as a number that forward saves.

    Args:
        forward: The forward graph: numbers that are saved are its last outputs.
        backward: The backward graph: they are its first inputs.
    """
    inputs = backward.find_nodes(op="placeholder")
    known = {symbol for node in inputs for symbol, _ in _plain(node)}
    used = {symbol for node in inputs for number in _numbers(node) for symbol in _expression(number).free_symbols}
    missing = sorted(used - known, key=str)
    if not missing:
        return
    output = forward.output_node()
    numbers = {_expression(n.meta["val"]): n for n in forward.nodes if is_symint(n)}
    places = {symbol: (node, dim) for node in forward.find_nodes(op="placeholder") for symbol, dim in _plain(node)}
    found: list[fx.Node] = []
    with forward.inserting_before(output):
        for symbol in missing:
            node = numbers.get(symbol)
            if node is None and symbol in places:
                source, dim = places[symbol]
                node = forward.call_function(torch.ops.aten.sym_size.int, (source, dim))
                node.meta = {"val": source.meta["val"].shape[dim]}
            if node is not None:
                found.append(node)
    outputs: Any = output.args[0]
    output.args = ((*outputs, *found),)
    first = next((n for n in backward.nodes if n.op != "placeholder" or not is_symint(n)), None)
    with backward.inserting_before(first):
        for node in found:
            backward.placeholder(node.name).meta = dict(node.meta)


def shows_symbols(given: Iterable[fx.Node], group: Iterable[fx.Node], before: Iterable[fx.Node]) -> list[fx.Node]:
    """Returns what a part of a graph has to be given beside its inputs, so that each symbol can be read off one.

    Args:
        given: Its inputs.
        group: Its nodes.
        before: The nodes of the whole graph up to it.
    """
    known = {symbol for node in given for symbol, _ in _plain(node)}
    inside = (number for node in (*given, *group) for number in _numbers(node))
    missing = {symbol for number in inside for symbol in _expression(number).free_symbols} - known
    found: list[fx.Node] = []
    for node in before if missing else ():
        shown = missing.intersection(symbol for symbol, _ in _plain(node))
        if shown:
            missing -= shown
            found.append(node)
    return found


def _numbers(node: fx.Node) -> Iterable[Any]:
    """Yields the symbolic numbers that an input is, or that describe it."""
    value = dict.get(node.meta, "val")  # as it is: no fake tensor is made for this
    if is_symbolic(value):
        yield value
    elif isinstance(value, torch.Tensor):
        yield from filter(is_symbolic, (*value.shape, *value.stride(), value.storage_offset()))


def _plain(node: fx.Node) -> Iterable[tuple[Any, int]]:
    """Yields the symbols that can be read off an input, each with the dimension whose size it is."""
    value = dict.get(node.meta, "val")  # as it is: no fake tensor is made for this
    if isinstance(value, tuple | list):
        return
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    for dim, size in enumerate(sizes):
        if is_symbolic(size) and _expression(size).is_Symbol:
            yield _expression(size), dim


def _expression(number: Any) -> Any:
    return _torch.symbolic.expression_of(number)
