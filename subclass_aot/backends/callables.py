"""Compilers as AOTAutograd has them: a callable of a graph and of fake tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from subclass_aot.backends.returned_graph import run_of
from subclass_aot.base import _torch
from subclass_aot.engine.compilers import BoxedFunction, Compiler, Fakes, of_callable
from subclass_aot.errors import CompilerResultError

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


@of_callable.put
def compile_by_callable(
    compiler: Compiler, graph: fx.GraphModule, inputs: list[Any], is_backward: bool
) -> BoxedFunction:
    """Compiles a graph by a compiler as AOTAutograd has them.

    Args:
        compiler: The compiler.
        graph: The graph.
        inputs: Tensors without data like its inputs, and symbolic numbers.
        is_backward: Whether it is a backward graph.

    Raises:
        CompilerResultError: What it returned cannot be called with the inputs of the graph.
    """
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
