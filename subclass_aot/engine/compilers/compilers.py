"""What compiles a dense graph: the protocol, and compilers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import warn
from subclass_aot.base.later import Later, Registry
from subclass_aot.base.texts import called
from subclass_aot.engine.passes import copied_graph
from subclass_aot.errors import SubclassAotError

BoxedFunction = Callable[[list[Any]], Sequence[Any]]
"""Takes its inputs as one list, which it may empty; returns its outputs in order."""

Compiler = Callable[[fx.GraphModule, list[Any]], Any]
"""`(graph_module, example_inputs)` to a function, as AOTAutograd has it. Example inputs are fake tensors."""

STRIDES = "output_strides"
"""In `meta` of a graph: the strides that a compiler gives to what is only saved for backward."""

_TRUSTED = _torch.custom_op_aliases.TRUSTED

_UNKNOWN = """There is no compiler named {name!r}.
  Names:   {names}
  Or pass a callable: (graph_module, example_inputs) -> function of the inputs, as for AOTAutograd."""


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Two functions that carry to another process what a compiler has made of graphs.

    Attributes:
        record: Runs a function that compiles, and gives what was made, by names.
        load: Takes that, before the same is compiled.
    """

    record: Callable[[Callable[[], object]], dict[str, bytes]]
    load: Callable[[Mapping[str, bytes]], None]


@dataclass(frozen=True, slots=True)
class Backend:
    """A named compiler.

    Attributes:
        compile: `(graph_module, example_inputs, is_backward)` to a boxed function.
        decompositions: Operators it wants decomposed while tracing.
        chooses_strides: Whether its forward graphs may give what they save any strides, reported in
            `meta["output_strides"]`, and its backward graphs take what is saved as its example inputs say.
        artifacts: How another process is spared to compile the same; None if that cannot be.
        fuses: Whether it runs cheap operators together with those that read them, so that computing them twice is free.
        takes_own: Whether it takes operators of this library that a trace can write out: see `products.py`.
        assumes_nothing: Whether it compiles every graph with symbolic sizes, and puts no guard on these.
        one_by_one: Whether it runs the operators of a graph one by one, with the kernels of eager mode: then it takes
            no time, and leaves the graph as it is.
    """

    compile: Callable[[fx.GraphModule, list[Any], bool], BoxedFunction]
    decompositions: Callable[[], Mapping[Any, Callable[..., Any]]] = dict
    chooses_strides: bool = False
    artifacts: Artifacts | None = None
    fuses: bool = False
    takes_own: bool = False
    assumes_nothing: bool = False
    one_by_one: bool = False

    def __repr__(self) -> str:
        return f"<Backend {called(self.compile)}>"


BACKENDS: Registry[Backend] = Registry("compiler")
"""Compilers by name."""

of_callable: Later[[Compiler, fx.GraphModule, list[Any], bool], BoxedFunction] = Later("of_callable")
"""Compiles a graph by a compiler as AOTAutograd has them; and whether it is a backward graph."""

of_partitioner: Later[[Callable[..., Any]], Callable[..., tuple[fx.GraphModule, fx.GraphModule]]] = Later(
    "of_partitioner"
)
"""Makes a partitioner of graphs of this library of one as AOTAutograd has them."""


def resolve(compiler: str | Compiler | Backend) -> Backend:
    """Returns the backend for a name or a callable, or itself.

    Raises:
        SubclassAotError: There is no such name.
    """
    if isinstance(compiler, str):
        if compiler not in BACKENDS:
            raise SubclassAotError(_UNKNOWN.format(name=compiler, names=", ".join(sorted(BACKENDS))))
        return BACKENDS[compiler]
    if isinstance(compiler, Backend):
        return compiler
    return Backend(lambda graph, inputs, is_backward: of_callable(compiler, graph, inputs, is_backward))


def example_inputs(graph: fx.GraphModule) -> list[Any]:
    """Returns a tensor without data for each input of a graph."""
    return [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]


@_torch.plain_subclasses.classes_see("functions")  # compilers may trace again, with proxies, which are of a class
def compiled(backend: Backend, graph: fx.GraphModule, inputs: list[Any], is_backward: bool) -> BoxedFunction:
    """Returns a compiled graph. Autocast is off while it is compiled: what it would cast was cast when it was recorded.

    Backward may run where autocast is on, and turns it off. Of forward, guards say where it runs: see `make_entry`.
    Compilers change the graph that they are given. What a trace has recorded is read later, by files say, so they get a
    copy.
    """
    given = graph if backend.one_by_one else copied_graph(graph)
    with _torch.switches.disable_autocast():
        run = backend.compile(given, inputs, is_backward)
    graph.meta[STRIDES] = given.meta.get(STRIDES, ())
    custom = {n.target for n in graph.graph.nodes if getattr(n.target, "namespace", "aten") not in _TRUSTED}
    if custom and any(map(_torch.custom_op_aliases.returns_new_tensors, custom)):
        run = _with_aliases_checked(run, custom)
    return without_autocast(run) if is_backward else run


def _with_aliases_checked(run: BoxedFunction, custom: set[Any]) -> BoxedFunction:
    """Returns `run`, whose first call checks that custom operators return new tensors where their schemas say so.

    Args:
        run: A compiled graph.
        custom: The custom operators in it.
    """
    operators = frozenset(filter(_torch.custom_op_aliases.returns_new_tensors, custom))
    is_first = True

    def run_checked(inputs: list[Any]) -> Sequence[Any]:
        nonlocal is_first
        if not is_first or not _torch.custom_op_aliases.is_checked():
            return run(inputs)
        with _torch.custom_op_aliases.AliasCheck(operators) as check:
            outputs = run(inputs)
        is_first = False
        for found in check.found:
            warn(found)
        return outputs

    return run_checked


def without_autocast(run: BoxedFunction) -> BoxedFunction:
    """Returns `run`, which disables autocast where it is on."""

    def run_as_recorded(inputs: list[Any]) -> Sequence[Any]:
        if not _torch.switches.is_any_autocast_enabled():
            return run(inputs)
        with _torch.switches.disable_autocast():
            return run(inputs)

    return run_as_recorded
