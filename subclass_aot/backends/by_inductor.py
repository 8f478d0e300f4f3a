"""The compiler "inductor": a graph, and what inductor wants to be told of it."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import fx

from subclass_aot.backends.draws import inductor_decompositions, keep_draws
from subclass_aot.backends.for_inductor import (
    given_sizes,
    sizes_to_pass,
    take_casts,
    take_entangled_writes,
    take_fastest,
    take_sizes,
    then_write,
)
from subclass_aot.base import _torch
from subclass_aot.base.operators import runs_once
from subclass_aot.engine.compilers import (
    BACKENDS,
    STRIDES,
    Artifacts,
    Backend,
    BoxedFunction,
    example_inputs,
    fake_of,
    solver_of,
)
from subclass_aot.engine.passes import draws, take_any_strides
from subclass_aot.errors import SubclassAotError
from subclass_aot.meta import MetaTensor, Spec
from subclass_aot.meta.symbols import is_symbolic

_UNKNOWN_MODE = """inductor has no mode {mode!r}.
  Modes: {names}"""

_UNKNOWN_SWITCH = """inductor has no switch {name!r}.
  Alike:   {near}
  Instead: a switch that torch.compile(options=...) takes."""


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

    return dataclasses.replace(INDUCTOR, compile=compile, decompositions=decompositions, artifacts=None)


def _near(name: str) -> str:
    found = difflib.get_close_matches(name, _torch.inductor.inductor_switch_names(), n=3)
    return ", ".join(found) or "see torch._inductor.list_options()"


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
    graph.meta[STRIDES] = strides
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


INDUCTOR = Backend(
    _inductor,
    inductor_decompositions,
    chooses_strides=True,
    artifacts=Artifacts(_torch.inductor.recorded_artifacts, _torch.inductor.load_artifacts),
    fuses=True,
    takes_own=True,
)
BACKENDS["inductor"] = INDUCTOR
