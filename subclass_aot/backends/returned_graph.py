"""What a compiler returned that is the graph it was given: a function of its own runs it, which is made at once.

torch writes the code of a graph so that people read it, with types and the lines of the program, which takes a tenth of
a first call. Whoever reads the code, has it generated, or adds a hook has the module called, as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.codegen import Source


def run_of(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """Returns a function of a list of inputs that computes what a module does.

    Args:
        module: The module that a compiler was given, and has returned.
    """
    straight: Callable[[list[Any]], Any] | None = None
    is_written = False

    def run(inputs: list[Any]) -> Any:
        nonlocal straight, is_written
        if not _torch.graphs.waits_for_code(module):
            return module(*inputs)
        if not is_written:
            straight, is_written = _written(module), True
        return module(*inputs) if straight is None else straight(inputs)

    return run


def _written(module: fx.GraphModule) -> Callable[[list[Any]], Any] | None:
    """Returns the operators of a graph as straight-line code; None where it has more than operators."""
    nodes = list(module.graph.nodes)
    if not all(map(_is_plain, nodes)):
        return None
    source = Source("graph", "inputs", "Runs the operators of a graph.")
    names = {node: source.fresh(node.name) for node in nodes if node.op != "output"}
    text = _Text(source, names)
    inputs = [names[node] for node in nodes if node.op == "placeholder"]
    if inputs:
        source.line(f"({', '.join(inputs)}, ) = inputs")
        source.line("inputs.clear()")
    last = _last_reads(nodes)
    for node in nodes:
        if node.op == "output":
            source.line(f"return {text(node.args[0])}")
        elif node.op != "placeholder":
            source.line(f"{names[node]} = {text.call(node, module)}")
            if gone := last.get(node):
                source.line(f"del {', '.join(names[each] for each in gone)}")
    return source.build()


def _is_plain(node: fx.Node) -> bool:
    """Returns whether a node is an operator, an attribute, an input or the results, with arguments in lists at most."""
    if node.op == "placeholder":
        return not node.args
    if node.op not in ("get_attr", "call_function", "output"):
        return False
    return not any(map(_is_table, node.args)) and not any(map(_is_table, node.kwargs.values()))


def _is_table(value: object) -> bool:
    """Returns whether an argument has nodes at places other than in lists, tuples and slices, perhaps."""
    if isinstance(value, list | tuple):
        return type(value) not in _LISTS or any(map(_is_table, value))
    return isinstance(value, dict)


def _last_reads(nodes: Sequence[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """Returns by each node what nobody reads after it."""
    seen: set[fx.Node] = set()
    last: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(nodes):
        if node.op == "output":
            seen.update(node.all_input_nodes)
            continue
        gone = [each for each in node.all_input_nodes if each not in seen]
        if node not in seen and node.op != "placeholder":
            gone.append(node)
        seen.update(gone)
        if gone:
            last[node] = gone
    return last


class _Text:
    """Expressions of nodes and arguments."""

    def __init__(self, source: Source, names: dict[fx.Node, str]) -> None:
        self._source = source
        self._names = names

    def call(self, node: fx.Node, module: fx.GraphModule) -> str:
        """Returns the call of an operator, or the read of an attribute."""
        if node.op == "get_attr":
            read = self._source.const(operator.attrgetter(str(node.target)), "attribute")
            return f"{read}({self._source.const(module, 'module')})"
        function = self._source.const(node.target, node.name)
        arguments = [self(argument) for argument in node.args]
        arguments += [f"{name}={self(argument)}" for name, argument in node.kwargs.items()]
        return f"{function}({', '.join(arguments)})"

    def __call__(self, value: object) -> str:
        if isinstance(value, fx.Node):
            return self._names[value]
        if type(value) in (int, bool, str, type(None)):
            return repr(value)
        if type(value) is tuple:
            return f"({''.join(self(each) + ', ' for each in value)})"
        if isinstance(value, list):
            return f"[{', '.join(map(self, value))}]"
        if isinstance(value, slice):
            return f"slice({self(value.start)}, {self(value.stop)}, {self(value.step)})"
        return self._source.const(value)


_LISTS = (tuple, list, fx.immutable_collections.immutable_list)
