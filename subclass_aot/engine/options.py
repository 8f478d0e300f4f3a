"""Options of users, and how the graphs of a trace are compiled for these."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

from subclass_aot.base import hooks
from subclass_aot.base._stack import user_line
from subclass_aot.base.logs import announced_to, log_graph
from subclass_aot.base.texts import called
from subclass_aot.base.written_out import WRITTEN_OUT
from subclass_aot.engine.call import Arguments, RecordedCall
from subclass_aot.engine.compilers import BACKENDS, Artifacts, Backend, BoxedFunction, Compiler, compiled, resolve
from subclass_aot.engine.runtime import (
    CompiledGraphs,
    Graphs,
    LazyFunction,
    PartitionFn,
    UnexpectedTangents,
    backward_inputs,
    compiled_forward,
    second_derivatives,
    split,
)
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.stages import checked_by
from subclass_aot.engine.trace import JointTrace
from subclass_aot.errors import SubclassAotError

Decompositions = Mapping[Any, Callable[..., Any]] | Callable[[], Mapping[Any, Callable[..., Any]]]
"""Operators to functions that replace them, or a function that gives such a table, as AOTAutograd takes it."""

WithTangents = Callable[[Mapping[int, "torch.Tensor | None"]], JointTrace]
"""Tangents, by their positions, to a trace that goes backward with them."""

_UNKNOWN_VALUES = """values={values!r} is neither "check" nor "refuse".
  "check" compiles a function that reads values for those of the call, and checks them at each call."""


@dataclass(frozen=True)
class Options:
    """The options of `aot_compile`, by their names there.

    Raises:
        SubclassAotError: There is no such compiler, or `values` is neither of two words.
    """

    # More than ten attributes: each is an option of the user's.
    fw_compiler: str | Compiler | Backend = "eager"
    bw_compiler: str | Compiler | Backend | None = None
    partition_fn: PartitionFn | None = None
    decompositions: Decompositions | None = None
    dynamic: bool | None = None
    cache_limit: int = 64
    double_backward: bool = False
    lazy_backward: bool = True
    values: Literal["check", "refuse"] = "check"
    values_limit: int = 8
    inference_compiler: str | Compiler | Backend | None = None

    def __post_init__(self) -> None:
        if self.values not in ("check", "refuse"):
            raise SubclassAotError(_UNKNOWN_VALUES.format(values=self.values))
        for compiler in (self.fw_compiler, self.bw_compiler, self.inference_compiler):
            resolve(self.fw_compiler if compiler is None else compiler)

    @property
    def compiler(self) -> str:
        """What a text calls the compiler of forward graphs."""
        given = self.fw_compiler
        if isinstance(given, str):
            return f'"{given}"'
        if isinstance(given, Backend):
            return called(given.compile)
        return str(getattr(given, "__name__", type(given).__name__))

    @functools.cached_property
    def forward(self) -> Backend:
        """What compiles forward graphs of which there is a backward graph."""
        return resolve(self.fw_compiler)

    @functools.cached_property
    def backward(self) -> Backend:
        """What compiles backward graphs."""
        return resolve(self.fw_compiler if self.bw_compiler is None else self.bw_compiler)

    @functools.cached_property
    def inference(self) -> Backend:
        """What compiles graphs without a backward graph."""
        return resolve(self.fw_compiler if self.inference_compiler is None else self.inference_compiler)

    @property
    def backends(self) -> dict[str, Backend]:
        """All that compile, by the options that name them."""
        return {"fw_compiler": self.forward, "bw_compiler": self.backward, "inference_compiler": self.inference}

    def of_forward(self, graphs: Graphs) -> Backend:
        """Returns what compiles the forward graph of a signature."""
        return self.inference if graphs.backward is None else self.forward

    @property
    def artifacts(self) -> dict[str, Artifacts]:
        """Compilers whose artifacts can be saved, by name."""
        compilers = self.fw_compiler, self.bw_compiler, self.inference_compiler
        named = {name: BACKENDS[name] for name in compilers if isinstance(name, str)}
        return {name: backend.artifacts for name, backend in named.items() if backend.artifacts is not None}

    @property
    def replaced(self) -> Mapping[Any, Callable[..., Any]]:
        """The operators that are replaced while tracing: those that the compiler wants decomposed, and the user's."""
        own_operators = WRITTEN_OUT if all(backend.takes_own for backend in self.backends.values()) else ()
        whole = dict.fromkeys(own_operators, lambda *args: NotImplemented)  # which has them recorded as they are
        own = self.decompositions() if callable(self.decompositions) else self.decompositions or {}
        return {**whole, **self.inference.decompositions(), **self.forward.decompositions(), **own}


def compile_graphs(
    name: str,
    trace: JointTrace,
    options: Options,
    call: tuple[Callable[..., Any], Arguments] | None = None,
    compile_alike: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> CompiledGraphs:
    """Splits a joint graph, and compiles what comes of it.

    Args:
        name: What errors call what was traced.
        trace: The joint graph, as the trace or as passes left it, and its signature.
        options: The options of the user.
        call: The function and the call that were traced. Without it, gradients are not differentiable.
        compile_alike: Compiles another function with the same options.
    """
    graphs, doubly = split(trace, options.partition_fn, options.backward.fuses), None
    log_graph("joint", trace.graph_module, name)
    for check in checked_by:
        check(name, trace, graphs)
    if call is not None and compile_alike is not None and options.double_backward and graphs.backward is not None:
        repeats_draws = options.forward.one_by_one
        doubly = second_derivatives.again(trace.signature, graphs, RecordedCall.of(*call), compile_alike, repeats_draws)
    return compile_split(name, trace.signature, graphs, options, trace.with_tangents, doubly)


def compile_split(
    name: str,
    signature: JointSignature,
    graphs: Graphs,
    options: Options,
    with_tangents: WithTangents | None,
    double_backward: second_derivatives.Again | None = None,
) -> CompiledGraphs:
    """Compiles the graphs of a signature.

    Args:
        name: What errors call what was traced.
        signature: The signature.
        graphs: The graphs.
        options: The options of the user.
        with_tangents: Goes backward once more, for other tangents.
        double_backward: What makes gradients differentiable.
    """
    if hooks.at_first_compile is not None:
        hooks.before_compile()
    graphs.tell_compilers(signature, options.backward.chooses_strides, options.backward.one_by_one)
    log_graph("inference" if graphs.backward is None else "forward", graphs.forward, name)
    backend = options.of_forward(graphs)
    with _told(backend, graphs.forward, name, "forward"):
        forward = compiled_forward(backend, graphs.forward)
    compiled = CompiledGraphs(graphs, forward, double_backward=double_backward)
    if graphs.backward is None:
        return compiled
    assert with_tangents is not None
    if not signature.parts:
        return _with_backward(name, signature, compiled, options, with_tangents)
    parts = []
    for i in range(len(signature.parts)):
        begun = dataclasses.replace(compiled, graphs=graphs.of_part(signature, i))
        again = UnexpectedTangents.of_part(signature, i, with_tangents)
        parts.append(_with_backward(name, signature.of_part(i), begun, options, again))
    return dataclasses.replace(compiled, parts=tuple(parts))


def _with_backward(
    name: str, signature: JointSignature, compiled: CompiledGraphs, options: Options, with_tangents: WithTangents
) -> CompiledGraphs:
    """Compiles a backward graph, where its forward graph is compiled."""
    graphs = compiled.graphs
    assert graphs.backward is not None
    compile_backward = functools.partial(_compile_backward, options.backward, graphs, name)
    others = UnexpectedTangents(signature, with_tangents, graphs, compile_backward)
    backward: BoxedFunction
    if options.lazy_backward and (signature.assumptions.symbols is None or options.backward.assumes_nothing):
        compile_later = functools.partial(compile_backward, graphs.backward)
        backward = LazyFunction(compile_later, name, user_line())
    else:  # a compiler may assume something of symbols, or not take them and be given numbers, before forward runs
        backward = compile_backward(graphs.backward)
    return dataclasses.replace(compiled, backward=backward, others=others)


def artifacts_of(
    options: Options, compiled_for: Sequence[tuple[JointSignature, Graphs]]
) -> dict[str, dict[str, bytes]]:
    """Returns what compilers have made of graphs, by the names of the compilers. What was not compiled yet is compiled
    now.

    Args:
        options: What they are compiled with.
        compiled_for: Each signature with its graphs.
    """

    def compile(backend: Backend) -> None:
        for signature, graphs in compiled_for:
            if options.of_forward(graphs) is backend:
                compiled_forward(backend, graphs.forward)
            parts = [graphs.of_part(signature, i) for i in range(len(signature.parts))] or [graphs]
            for part in parts if options.backward is backend else ():
                if part.backward is not None:
                    compiled(backend, part.backward, backward_inputs(part, part.backward), True)

    made = options.artifacts.items()
    return {name: artifacts.record(functools.partial(compile, BACKENDS[name])) for name, artifacts in made}


def _compile_backward(backend: Backend, graphs: Graphs, name: str, graph: fx.GraphModule) -> BoxedFunction:
    log_graph("backward", graph, name)
    graph.meta["cuda_graphs"] = graphs.forward.meta["cuda_graphs"]
    with _told(backend, graph, name, "backward"):
        return compiled(backend, graph, backward_inputs(graphs, graph), True)


@contextmanager
def _told(backend: Backend, graph: fx.GraphModule, name: str, kind: str) -> Iterator[None]:
    """Shows what is compiled while the block runs, to who asked for it. `"eager"` takes no time."""
    if backend.one_by_one or not announced_to:
        yield
        return
    count = sum(node.op == "call_function" for node in graph.graph.nodes)
    for announce in announced_to:
        announce(f"{name}: compiles the {kind} graph of {count} operators")
    yield
    for announce in announced_to:
        announce("")
