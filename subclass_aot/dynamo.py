"""`torch.compile(model, backend="subclass_aot")`: Dynamo captures and guards, this library compiles what it captured.

Note [Within torch.compile]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
Dynamo hands over a graph that calls functions of torch, the tensors of the call, wrappers included, and for each of
them a fake with the symbols that it made for sizes. The graph is traced as any function is. What the trace assumes of a
symbol becomes one of Dynamo's guards, since these are made after the graph was compiled. So at a call nothing is left
to check of a tensor by itself. Dynamo does not see what tensors have to do with one another below the surface of a
wrapper: whether inner tensors share memory with other arguments, which matters if that is written, and whether
something is a leaf of autograd's graph. Where that differs, an `aot_compile` of the same graph takes over, with guards
of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot._stack import captured_at
from subclass_aot.call import Arguments
from subclass_aot.compile import aot_compile
from subclass_aot.errors import DataDependentError, SubclassAotError
from subclass_aot.graph import Retrace
from subclass_aot.guards import MISS, global_state
from subclass_aot.objects import sized
from subclass_aot.options import Options, compile_graphs
from subclass_aot.runtime import OtherValue, make_entry
from subclass_aot.sizes import GivenSizes, symbols_of
from subclass_aot.symbols import is_symbolic
from subclass_aot.trace import JointTrace, trace_arguments

_EXAMPLE = "example_value"

_UNKNOWN_OPTION = """torch.compile(backend="subclass_aot", options=...): there is no option {name!r}.
  Options: {names}
  They are the keywords of aot_compile."""

_NO_MODE = """torch.compile(backend="subclass_aot", mode={mode!r}): modes are inductor's, and this backend takes none.
  Instead: leave it out; options={{"fw_compiler": "inductor"}} has inductor compile the graphs."""


def backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that Dynamo captured; `torch.compile` calls it.

    Args:
        gm: The graph.
        example_inputs: The tensors of the call, and numbers.
        mode: As `torch.compile` is given it.
        options: The keywords of `aot_compile`, by name.

    Returns:
        A function of the inputs, one by one.

    Raises:
        SubclassAotError: There is no such option or mode.

    >>> import torch
    >>> double = torch.compile(lambda x: x * 2, backend="subclass_aot")
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    if mode not in (None, "default"):
        raise SubclassAotError(_NO_MODE.format(mode=mode))
    chosen = _options(options or {})
    later = aot_compile(gm, **vars(chosen))
    if any(isinstance(x, torch.Tensor) and _torch.is_jagged(type(x)) for x in example_inputs):
        return later  # their nested ints are Dynamo's, and mean nothing outside its fakes
    try:
        call = _compile(gm, example_inputs, chosen)
    except Retrace:  # with the gradients of inputs
        return later

    def run(*args: object) -> Any:
        try:
            result = call(args)
        except OtherValue:
            result = MISS
        return later(*args) if result is MISS else result

    return run


def _options(given: Mapping[str, Any]) -> Options:
    """Reads the options.

    Raises:
        SubclassAotError: There is no such option.
    """
    names = [field.name for field in dataclasses.fields(Options)]
    for name in given:
        if name not in names:
            raise SubclassAotError(_UNKNOWN_OPTION.format(name=name, names=", ".join(names)))
    return Options(**given)


@dataclass(frozen=True, slots=True, eq=False)
class _Captured:
    """What Dynamo captured, as a function of tensors alone.

    Attributes:
        graph_module: The graph; its parameters and constants are inputs, too, after the others.
        sources: For each of its inputs, the position of the tensor that it is, or that brings a number; else None.
        numbers: Which inputs are numbers that no size of a tensor tells.
        known: What the others are: symbols, or constants.
        held: The parameters and constants.
        examples: Tensors or numbers with Dynamo's symbols, by the path of the tensor.
    """

    graph_module: fx.GraphModule
    sources: tuple[int | None, ...]
    numbers: frozenset[int]
    known: Mapping[int, Any]
    held: tuple[torch.Tensor, ...]
    examples: Mapping[str, Any]

    @staticmethod
    def of(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> _Captured:
        """Reads it."""
        placeholders = gm.graph.find_nodes(op="placeholder")
        gm, held = _with_tensors_as_inputs(gm)
        given: list[Any] = [node.meta.get(_EXAMPLE) for node in placeholders]
        told = {s for example in given if isinstance(example, torch.Tensor) for s in symbols_of(example)}
        sources: list[int | None] = []
        known: dict[int, Any] = {}
        examples: dict[str, Any] = {}
        numbers = set()
        for i, (example, real) in enumerate(zip(given, example_inputs, strict=True)):
            here = isinstance(real, torch.Tensor)
            if not here and not is_symbolic(example):
                known[i] = real
            elif not here and symbols_of(example) <= told:
                known[i] = example
            elif not here and _torch.example_of(example) < 2:  # which is no symbol anywhere
                known[i] = int(example)
            elif not here:
                numbers.add(i)
                here = True
            position = len(sources) - sources.count(None)
            sources.append(position if here else None)
            if here and example is not None:
                examples[f"args[{position}]"] = example
        count = len(sources) - sources.count(None)
        sources += range(count, count + len(held))
        return _Captured(gm, tuple(sources), frozenset(numbers), known, held, examples)

    def tensors(self, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """What the inputs of a call are as tensors."""
        here = [i for i in range(len(inputs)) if self.sources[i] is not None]
        return (*(sized(_torch.example_of(inputs[i])) if i in self.numbers else inputs[i] for i in here), *self.held)

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Runs the graph."""
        given: list[Any] = [self.known.get(i) if at is None else tensors[at] for i, at in enumerate(self.sources)]
        for i in self.numbers:
            given[i] = given[i].shape[0]
        return _WithLines(self.graph_module).run(*given)


class _WithLines(fx.Interpreter):
    """Runs a graph, operator by operator, as if the lines ran that each was captured from."""

    extra_traceback = False  # what this library says of an error is enough

    def run_node(self, n: fx.Node) -> Any:
        """Runs one operator."""
        with captured_at(n.stack_trace or ""):
            return super().run_node(n)


def _with_tensors_as_inputs(gm: fx.GraphModule) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    """A graph that has no tensors of its own; and those that it had, which are inputs after the others."""
    nodes: dict[str, list[fx.Node]] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        if isinstance(_attribute(gm, node.target), torch.Tensor):
            nodes.setdefault(node.target, []).append(node)
    if not nodes:
        return gm, ()
    found = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    last = found.graph.find_nodes(op="placeholder")
    with found.graph.inserting_before(next(n for n in found.graph.nodes if n not in last)):
        made = {target: found.graph.placeholder("held") for target in nodes}
    for node in found.graph.find_nodes(op="get_attr"):
        if node.target in made:
            node.replace_all_uses_with(made[node.target])
            found.graph.erase_node(node)
    found.recompile()
    return found, tuple(_attribute(gm, target) for target in nodes)


def _attribute(gm: fx.GraphModule, target: str) -> Any:
    return functools.reduce(getattr, target.split("."), gm)


def _nothing(*tensors: torch.Tensor) -> None:
    """Stands for what is called where a call is taken apart: a captured graph holds nothing that may change."""


def _compile(gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    """Compiles a graph for what Dynamo guards.

    Raises:
        Retrace: It needs more of the call than that.
    """
    captured = _Captured.of(gm, example_inputs)
    arguments = Arguments.of(_nothing, captured.tensors(example_inputs), {})
    trace = _trace(captured, arguments, options)
    graphs = compile_graphs(captured, arguments, trace, options, lambda fn: aot_compile(fn, **vars(options)))
    call = make_entry(arguments, trace.signature, graphs, global_state(), within_dynamo=True).call
    if len(captured.sources) == len(arguments.leaves) and not captured.numbers and not captured.held:
        return lambda inputs: call(inputs, {}, inputs, None, None)

    def run(inputs: Sequence[Any]) -> Any:
        tensors = captured.tensors(inputs)
        return call(tensors, {}, tensors, None, None)

    return run


def _trace(captured: _Captured, arguments: Arguments, options: Options) -> JointTrace:
    solver = _torch.current_solver()
    sizes = GivenSizes(solver, captured.examples)
    if sizes:
        return trace_arguments(captured, arguments, options.replaced, sizes)
    try:
        return trace_arguments(captured, arguments, options.replaced)
    except DataDependentError:
        if solver is None:
            raise
        return trace_arguments(captured, arguments, options.replaced, GivenSizes(solver, {}))
