"""Compilers for dense graphs: by name, or any callable."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot._stack import warn
from subclass_aot.backends.draws import inductor_decompositions, keep_draws
from subclass_aot.backends.fakes import Fakes, fake_of, solver_of
from subclass_aot.backends.inductor import (
    given_sizes,
    sizes_to_pass,
    take_casts,
    take_entangled_writes,
    take_fastest,
    take_sizes,
    then_write,
)
from subclass_aot.backends.one_by_one import write_graph
from subclass_aot.backends.returned_graph import run_of
from subclass_aot.errors import CompilerResultError, SubclassAotError
from subclass_aot.meta import MetaTensor, Spec
from subclass_aot.operators import runs_once
from subclass_aot.passes import copied_graph, draws, take_any_strides
from subclass_aot.symbols import is_symbolic

BoxedFunction = Callable[[list[Any]], Sequence[Any]]
"""Takes its inputs as one list, which it may empty; returns its outputs in order."""

Compiler = Callable[[fx.GraphModule, list[Any]], Any]
"""`(graph_module, example_inputs)` to a function, as AOTAutograd has it. Example inputs are fake tensors."""

_STRIDES = "output_strides"
_TRUSTED = _torch.custom_op_aliases.TRUSTED

_UNKNOWN = """There is no compiler named {name!r}.
  Names:   {names}
  Or pass a callable: (graph_module, example_inputs) -> function of the inputs, as for AOTAutograd."""

_UNKNOWN_MODE = """inductor has no mode {mode!r}.
  Modes: {names}"""

_UNKNOWN_SWITCH = """inductor has no switch {name!r}.
  Alike:   {near}
  Instead: a switch that torch.compile(options=...) takes."""

_NOT_CALLABLE = """The {which} compiler returned {got}, which cannot be called.
  Compiler: {compiler}
  Instead:  return a function that takes the inputs of the graph and returns a sequence of its outputs."""

_WRONG_ARGUMENTS = """The {which} compiler returned a function that cannot be called with the inputs of its graph.
  Function: {got}
  Inputs:   {count}
  Compiler: {compiler}
  As in AOTAutograd, a function that says `{boxed} = True` gets its inputs as one list, and all else one by one.
  Instead:  return a function of `*inputs`, or `functorch.compile.make_boxed_func(function)` of such a function, or set
            `function.{boxed} = True` on one that takes a list."""


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
    """

    compile: Callable[[fx.GraphModule, list[Any], bool], BoxedFunction]
    decompositions: Callable[[], Mapping[Any, Callable[..., Any]]] = dict
    chooses_strides: bool = False
    artifacts: Artifacts | None = None
    fuses: bool = False
    takes_own: bool = False
    assumes_nothing: bool = False


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
    return Backend(lambda graph, inputs, is_backward: _call(compiler, graph, inputs, is_backward))


def inductor(mode: str | None = None, **switches: object) -> Backend:
    """Returns inductor with a mode, and with switches set otherwise than they are, as a `fw_compiler`.

    Args:
        mode: One of those of `torch.compile`.
        **switches: Switches of inductor, those that `torch.compile(options=...)` takes. Where a name has a dot, write
            `**{"triton.cudagraphs": True}`. With `fallback_random=True` random numbers are drawn by the kernels of
            eager mode, so they are the same under one seed; else inductor draws its own in the kernels that read them.

    Raises:
        SubclassAotError: There is no such mode or switch.

    >>> backend = inductor(fallback_random=True)
    """
    chosen = dict(switches)
    if mode is not None:
        modes = _torch.inductor.inductor_modes()
        if mode not in modes:
            raise SubclassAotError(_UNKNOWN_MODE.format(mode=mode, names=", ".join(modes)))
        chosen = {**modes[mode], **switches}
    for name in switches:
        if name not in _torch.inductor.inductor_switch_names():
            raise SubclassAotError(_UNKNOWN_SWITCH.format(name=name, near=_near(name)))

    def compile(graph: fx.GraphModule, inputs: list[Any], is_backward: bool) -> BoxedFunction:
        with _torch.inductor.inductor_switches(chosen):
            return _inductor(graph, inputs, is_backward)

    def decompositions() -> Mapping[Any, Callable[..., Any]]:
        with _torch.inductor.inductor_switches(chosen):
            return inductor_decompositions()

    return dataclasses.replace(BACKENDS["inductor"], compile=compile, decompositions=decompositions, artifacts=None)


def _near(name: str) -> str:
    found = difflib.get_close_matches(name, _torch.inductor.inductor_switch_names(), n=3)
    return ", ".join(found) or "see torch._inductor.list_options()"


def example_inputs(graph: fx.GraphModule) -> list[Any]:
    """Returns a tensor without data for each input of a graph."""
    return [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]


def _call(compiler: Compiler, graph: fx.GraphModule, inputs: list[Any], is_backward: bool) -> BoxedFunction:
    graph = _torch.graphs.as_plain_module(graph)
    fakes = Fakes(graph, inputs)
    with _torch.aotautograd.within_tracing(fakes.mode):
        compiled = compiler(graph, fakes.inputs)
    if _torch.aotautograd.unboxed(compiled) is graph:
        run = run_of(graph)
        return lambda inputs: _as_sequence(run(inputs))
    which = "backward" if is_backward else "forward"
    if not callable(compiled):
        got = f"a {type(compiled).__name__}"
        raise CompilerResultError(_NOT_CALLABLE.format(which=which, got=got, compiler=compiler))
    if not _takes(compiled, len(inputs)):
        message = _WRONG_ARGUMENTS.format(
            which=which, got=compiled, count=len(inputs), compiler=compiler, boxed=_torch.aotautograd.BOXED
        )
        raise CompilerResultError(message)
    outputs: Any = graph.graph.output_node().args[0]
    return _boxed(compiled, len(outputs))


def _takes(compiled: Callable[..., Any], count: int) -> bool:
    """Returns whether what a compiler returned can be called as it will be, as far as that can be known."""
    try:
        signature = inspect.signature(compiled, follow_wrapped=False)
    except (TypeError, ValueError):  # made by C or C++, as a `ScriptFunction`
        return True
    try:
        signature.bind(*range(1 if getattr(compiled, _torch.aotautograd.BOXED, False) else count))
    except TypeError:
        return False
    return True


def _boxed(compiled: Callable[..., Any], count: int) -> BoxedFunction:
    """Returns what a compiler returned as a function of one list, by AOTAutograd's conventions.

    What has that flag takes its inputs as one list, and everything else one by one. A tensor is the only output.

    Args:
        compiled: What was returned.
        count: How many outputs the graph has.
    """
    is_boxed = getattr(compiled, _torch.aotautograd.BOXED, False)
    if is_boxed and count != 1:
        return compiled
    if is_boxed:
        return lambda inputs: _as_sequence(compiled(inputs))
    return lambda inputs: _as_sequence(compiled(*inputs))


def _as_sequence(outputs: object) -> Any:
    return (outputs,) if isinstance(outputs, torch.Tensor) else outputs


@_torch.plain_subclasses.classes_see("functions")  # compilers may trace again, with proxies, which are of a class
def compiled(backend: Backend, graph: fx.GraphModule, inputs: list[Any], is_backward: bool) -> BoxedFunction:
    """Returns a compiled graph. Autocast is off while it is compiled: what it would cast was cast when it was recorded.

    Backward may run where autocast is on, and turns it off. Of forward, guards say where it runs: see `make_entry`.
    Compilers change the graph that they are given. What a trace has recorded is read later, by files say, so they get a
    copy.
    """
    given = graph if backend is BACKENDS["eager"] else copied_graph(graph)
    with _torch.switches.disable_autocast():
        run = backend.compile(given, inputs, is_backward)
    graph.meta[_STRIDES] = given.meta.get(_STRIDES, ())
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


def _eager(graph: fx.GraphModule, inputs: list[Any], is_backward: bool) -> BoxedFunction:
    """Runs the graph operator by operator."""
    return write_graph(graph)


class _Fakes(fx.Interpreter):
    """Puts a fake tensor on each node, views sharing storage as they do when the graph runs."""

    def __init__(self, graph: fx.GraphModule, mode: AbstractContextManager[object], solver: Any) -> None:
        super().__init__(graph)
        self.mode = mode
        self.solver = solver

    def run_node(self, node: fx.Node) -> Any:
        val = node.meta.get("val")
        if node.op == "call_function" and node.meta.get("unbacked"):  # run again, the operator would make other numbers
            val = _with_fakes(val, self.mode)
            if self.solver is not None:  # else all of them are known by now
                node.meta["unbacked_bindings"] = _torch.symbolic.bindings_of(self.solver, node.meta["unbacked"], val)
        elif node.op == "placeholder" or not is_symbolic(val):
            with self.mode:
                val = super().run_node(node)
        node.meta["val"] = val
        return val


def _with_fakes(val: object, mode: AbstractContextManager[object]) -> Any:
    """Returns the value of a node, a leaf or several, with a fake tensor for each leaf."""
    if isinstance(val, tuple | list):
        return type(val)(_with_fakes(v, mode) for v in val)
    return fake_of(val.meta_spec, mode) if isinstance(val, MetaTensor) else val


def _inductor(graph: fx.GraphModule, inputs: list[Any], is_backward: bool) -> BoxedFunction:
    """Compiles by inductor, which wants fake tensors, where this library has tensors that cost nothing to make."""
    static = [i for i in graph.meta.get("static_input_indices", ()) if _is_aligned(inputs[i].meta_spec)]
    solver = solver_of(graph)
    different = any(x is not expected for x, expected in zip(inputs, example_inputs(graph), strict=True))
    written = take_entangled_writes(graph)
    mode = _torch.inductor.fake_mode(_torch.symbolic.shape_env() if solver is None else solver)
    fakes = [fake_of(x.meta_spec, mode) if isinstance(x, MetaTensor) else _as_symbol(x, solver) for x in inputs]
    if different:
        take_any_strides(graph)
    once = {node.target for node in graph.graph.nodes if runs_once(node.target)}
    with (
        nullcontext() if solver is None else _torch.dispatch.python_dispatcher(),  # kernels in C++ know no symbols
        _torch.side_effects.registered(once),
    ):
        _Fakes(graph, mode, solver).run(*fakes)
    if different:
        _keep_strides_of_outputs(graph, mode)
    take_casts(graph.graph)
    keep_draws(graph.graph)
    take_fastest(graph.graph)
    if any(draws(node) for node in graph.graph.nodes):
        _torch.inductor.draw_as_inductor(graph, mode)
    sizes = sizes_to_pass(fakes)
    take_sizes(graph, sizes)
    free = graph.meta.get("free_outputs", frozenset())
    cuda_graphs = graph.meta.get("cuda_graphs") or _torch.inductor.CudaGraphs(is_inference=not is_backward)
    graph.meta = {}  # it would be a part of the key under which inductor keeps what it compiles
    how = _torch.inductor.Compilation(is_backward, static, free, is_cached=sizes.is_complete, cuda_graphs=cuda_graphs)
    with _torch.side_effects.registered(once):  # so that it keeps them, and their order
        compiled, strides = _torch.inductor.compile_with_inductor(graph, [*fakes, *sizes.numbers], mode, how)
    graph.meta[_STRIDES] = strides
    return then_write(given_sizes(compiled, sizes), written)


def _as_symbol(number: object, solver: Any) -> Any:
    """Returns a float input as a symbol of its own: inductor has no name for what an expression means."""
    if not isinstance(number, torch.SymFloat):
        return number
    compound = not _torch.symbolic.expression_of(number).is_Symbol
    return _torch.symbolic.cacheable(_torch.symbolic.new_unbacked(solver, "float") if compound else number)


def _keep_strides_of_outputs(graph: fx.GraphModule, mode: AbstractContextManager[object]) -> None:
    """Gives outputs whose strides follow from those of the inputs the strides that they were recorded with."""
    output = graph.graph.output_node()
    outputs: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    with graph.graph.inserting_before(output):
        for i, node in enumerate(outputs):
            spec = node.meta.get("spec") if isinstance(node, fx.Node) else None
            if spec is not None and spec.solver is None and node.meta["val"].stride() != spec.stride:
                outputs[i] = _torch.inductor.force_strides(graph.graph, node, spec.stride)
                outputs[i].meta = {**node.meta, "val": fake_of(spec, mode)}
    output.args = (tuple(outputs),)
    graph.recompile()


def _is_aligned(spec: Spec) -> bool:
    """Returns whether a leaf starts where inductor's code for accelerators expects it, if its storage does: at 16
    bytes.
    """
    return spec.offset * spec.dtype.itemsize % 16 == 0


BACKENDS: dict[str, Backend] = {
    "eager": Backend(_eager, takes_own=True, assumes_nothing=True),
    "inductor": Backend(
        _inductor,
        inductor_decompositions,
        chooses_strides=True,
        artifacts=Artifacts(_torch.inductor.recorded_artifacts, _torch.inductor.load_artifacts),
        fuses=True,
        takes_own=True,
    ),
}
"""Compilers by name."""
