"""The backend `"eager"`: a generated function that runs the operators of a graph one by one."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from subclass_aot.backends.bindings import binding_of
from subclass_aot.backends.plan import Call, Plan, nodes_in, owner_of
from subclass_aot.backends.reinplace import plan_of
from subclass_aot.backends.runs import Run, runs_of
from subclass_aot.base import _torch, hooks
from subclass_aot.base.codegen import Source
from subclass_aot.engine.passes import copied_graph

_aten = torch.ops.aten
_BETWEEN: dict[Callable[..., Any], str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
}  # fmt: skip
"""What Python writes between two numbers: no function is called."""


def write_graph(graph: fx.GraphModule) -> Callable[[list[Any]], Sequence[Any]]:
    """Returns a function that runs a graph, and empties the list of its inputs.

    Args:
        graph: A graph of operators on dense tensors. It is not changed.
    """
    return _Writer(graph).write()


def _of_functions(graph_module: fx.GraphModule) -> fx.Graph:
    """Returns the graph, in which calls of submodules and of methods, as passes put in, are calls of functions, and
    operators have by position what they may have so.
    """
    nodes = graph_module.graph.nodes
    if not any(node.op in ("call_module", "call_method") or node.kwargs and _is_by_name(node) for node in nodes):
        return graph_module.graph
    graph = copied_graph(graph_module).graph
    for node in graph.nodes:
        if node.kwargs and _is_by_name(node):
            _place(node)
        elif node.op == "call_module":
            node.op, node.target = "call_function", graph_module.get_submodule(node.target)
        elif node.op == "call_method":
            node.op, node.target = "call_function", functools.partial(_call_method, node.target)
    return graph


def _is_by_name(node: fx.Node) -> bool:
    """Returns whether an operator is given an argument by its name that has a position."""
    if not _torch.operators.is_overload(node.target):
        return False
    arguments = _torch.operators.schema_of(node.target).arguments
    return any(a.name in node.kwargs and not a.kwarg_only for a in arguments)


def _place(node: fx.Node) -> None:
    """Gives an operator by position what it was given by names, and what stands before and was left out."""
    arguments = [a for a in _torch.operators.schema_of(node.target).arguments if not a.kwarg_only]  # type: ignore[arg-type]
    last = max(i for i, a in enumerate(arguments) if a.name in node.kwargs)
    kwargs = dict(node.kwargs)
    more = [kwargs.pop(a.name) if a.name in kwargs else a.default_value for a in arguments[len(node.args) : last + 1]]
    node.args, node.kwargs = (*node.args, *more), kwargs


def _call_method(name: str, on: Any, *args: Any, **kwargs: Any) -> Any:
    return getattr(on, name)(*args, **kwargs)


class _Writer:
    def __init__(self, graph: fx.GraphModule) -> None:
        self.module = graph
        self.graph = _of_functions(graph)
        self.plan: Plan = plan_of(self.graph)
        self.source = Source("graph", "inputs", "Runs the operators of a graph.")
        self.names: dict[fx.Node, str] = {}

    def write(self) -> Callable[[list[Any]], Sequence[Any]]:
        source = self.source
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        for node in self.graph.nodes:
            if node.op == "get_attr":
                self.names[node] = source.const(operator.attrgetter(node.target)(self.module), node.name)
        constants = set(self.names)
        self.batch = source.fresh("batch")
        for node in inputs:
            self.names[node] = source.fresh(node.name)
        output = self.graph.output_node().args[0]
        assert isinstance(output, tuple | list)
        last = self.last_readers(output)
        if inputs:
            source.line(f"({''.join(self.names[n] + ', ' for n in inputs)}) = inputs")
            source.line("inputs.clear()")
        runs = {} if hooks.make_run is None else runs_of(self.plan, output)
        covered = {i for run in runs.values() for i in run.covers}
        for i, (node, call) in enumerate(self.plan.steps):
            if i in covered:
                if i in runs:
                    self.write_run(runs[i], last, constants)
                continue
            if node is None:
                source.line(self.assignment(call) or self.text(call))
            else:
                text = self.text(call)
                self.names[node] = source.fresh(node.name)
                source.line(f"{self.names[node]} = {text}")
            done = [self.names[n] for n in last.get(i, ()) if n not in constants]
            if done:
                source.line(f"del {', '.join(done)}")
        source.line(f"return {self.text(tuple(output))}")
        return source.build()

    def write_run(self, run: Run, last: dict[int, list[fx.Node]], constants: set[fx.Node]) -> None:
        """Writes the call of a run: a list is all that holds what it is the last to read."""
        source = self.source
        assert hooks.make_run is not None
        done = {node for i in run.covers for node in last.get(i, ())} - constants
        for i in run.covers:
            node, call = self.plan.steps[i]
            if node is not None and node not in self.names:
                self.names[node] = source.fresh(node.name)
            source.line(f"# {_text_of(node, call, self.plan.same)}")
        native = source.const(hooks.make_run(len(run.inputs), run.places, run.steps, run.results), "run")
        given = ", ".join(self.names[node] for node in run.inputs)
        gone = [self.names[node] for node in run.inputs if node in done]
        results = ", ".join(self.names[node] for node in run.outputs)
        if gone:
            source.line(f"{self.batch} = [{given}]")
            source.line(f"del {', '.join(gone)}")
            given = self.batch
        else:
            given = f"[{given}]"
        source.line(f"{results} = {native}({given})" if results else f"{native}({given})")

    def last_readers(self, output: Sequence[object]) -> dict[int, list[fx.Node]]:
        """Returns the nodes that nobody reads after a step, by the step."""
        last: dict[fx.Node, int] = {}
        for i, (node, call) in enumerate(self.plan.steps):
            for read in nodes_in((call,)):
                last[owner_of(read, self.plan.same)] = i
            if node is not None:
                last[node] = i
        for node in nodes_in(output):
            last.pop(owner_of(node, self.plan.same), None)
        readers: dict[int, list[fx.Node]] = {}
        for node, i in last.items():
            readers.setdefault(i, []).append(node)
        return readers

    def text(self, value: object) -> str:
        """Returns a value as an expression."""
        if isinstance(value, fx.Node):
            return self.names[owner_of(value, self.plan.same)]
        if isinstance(value, Call):
            return self.call(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, tuple):
            return f"({''.join(self.text(x) + ', ' for x in value)})"
        if isinstance(value, slice):
            return f"slice({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"
        if value is None or type(value) in (int, bool, str) or type(value) is float and math.isfinite(value):
            return repr(value)
        return self.source.const(value)

    def assignment(self, call: Call) -> str | None:
        """Returns the statement for a copy into a view, as Python has it: one call for two."""
        target = call.args[0]
        if call.func is not _aten.copy_.default or not isinstance(target, Call):
            return None
        index = self.index(target)
        return None if index is None else f"{self.text(target.args[0])}[{index}] = {self.text(call.args[1])}"

    def index(self, view: Call) -> str | None:
        """Returns the index that makes a view, if it is one."""
        if view.func not in (_aten.select.int, _aten.slice.Tensor) or view.kwargs or len(view.args) < 3:
            return None
        _, dim, *where = view.args
        if type(dim) is not int or dim < 0:
            return None
        if view.func is _aten.select.int:
            text = self.text(where[0])
        else:
            text = f"slice({', '.join(map(self.text, where))})" if len(where) > 1 else ""
        return f"{'slice(None), ' * dim}{text}" if text else None

    def call(self, call: Call) -> str:
        if call.func is operator.getitem:
            return f"{self.text(call.args[0])}[{self.text(call.args[1])}]"
        if call.func in _BETWEEN:
            left, right = map(self.text, call.args)
            return f"({left} {_BETWEEN[call.func]} {right})"
        if call.args[1:2] == (0,) and (index := self.index(call)) is not None:
            return f"{self.text(call.args[0])}[{index}]"
        function = self.source.const(binding_of(call.func, call.kwargs), _hint(call.func))
        arguments = [self.text(x) for x in call.args]
        arguments += [f"{name}={self.text(x)}" for name, x in call.kwargs.items()]
        return f"{function}({', '.join(arguments)})"


def _hint(func: Callable[..., Any]) -> str:
    return (
        str(func).removesuffix(".default")
        if _torch.operators.is_overload(func)
        else getattr(func, "__name__", "function")
    )


def _text_of(node: fx.Node | None, call: Call, same: dict[fx.Node, fx.Node]) -> str:
    """Returns a step of a run as a line of Python might say it."""
    text = _value_text(call, same)
    return text if node is None else f"{node.name} = {text}"


def _value_text(value: object, same: dict[fx.Node, fx.Node]) -> str:
    if isinstance(value, fx.Node):
        return owner_of(value, same).name
    if isinstance(value, Call):
        arguments = [_value_text(x, same) for x in value.args]
        arguments += [f"{name}={_value_text(x, same)}" for name, x in value.kwargs.items()]
        return f"{_hint(value.func)}({', '.join(arguments)})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value_text(x, same) for x in value)}]"
    return repr(value)
