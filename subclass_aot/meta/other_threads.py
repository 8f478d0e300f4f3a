"""A traced tensor that another thread meets: the input that it stands for is used in its place.

While a function is traced, lists, dicts and attributes that it reads hold tensors without data, for all threads.
(Parameters and buffers of modules do not: see `tables/of_thread.py`.) A graph that records notes its thread and, by
the names of their nodes, the tensors of the call.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot._stack import user_line
from subclass_aot._torch.operators import Operator
from subclass_aot.errors import TraceError, UnknownTensorError
from subclass_aot.operators import argument_at, effects_of

_NO_INPUT = """{operator} is given a tensor without data that another thread has made, since it traces a function.
  Your line:  {line}
  Instead: call what is compiled once, for each kind of call, before other threads use what it changes."""

_MADE_ELSEWHERE = """The traced function gets a tensor that is newer than the trace, and another thread has computed
  with tensors of the call meanwhile: later calls would not compute it.
  Your line:  {line}
  The tensor: a tensor of shape {shape}
  Instead: compute it in the thread that calls what is compiled. If the other thread has nothing to do with the
  function, call what is compiled once before that thread reads what the function reads."""

_GRADIENTS = """{operator} computes with a tensor that requires grad, and that stands for another one while another
  thread traces a function that reads it: the gradient would be lost.
  Your line:  {line}
  Instead: compute under torch.no_grad(), keep the tensor as a parameter or buffer of a module, or call what is
  compiled once before other threads train."""


def note(graph: Any, inputs: Mapping[Any, object]) -> None:
    """Notes that this thread records a graph, and what its placeholders stand for; nothing is kept alive."""
    graph.thread = threading.get_ident()
    graph.real_inputs = {node.name: weakref.ref(x) for node, x in inputs.items() if isinstance(x, torch.Tensor)}


def refuse_made_elsewhere(graph: Any, tensor: torch.Tensor) -> None:
    """Refuses a real tensor that is newer than a trace, if another thread has computed with inputs of the trace.

    A function that has a thread of its own compute would get what that computed for this call, at each call. Python's
    collector lists new objects alone in a trace: see `outcome/older_objects.py`.

    Raises:
        TraceError: It is one.
    """
    if getattr(graph, "is_read_elsewhere", False) and any(x is tensor for x in gc.get_objects()):
        raise TraceError(_MADE_ELSEWHERE.format(shape=list(tensor.shape), line=user_line()))


def is_elsewhere(node: Any) -> bool:
    """Returns whether another thread records the graph of a node."""
    thread = getattr(getattr(node, "graph", None), "thread", None)
    return thread is not None and thread != threading.get_ident()


def real_input(node: Any) -> Any:
    """Returns the tensor of a placeholder, if another thread records its graph, or did; else None."""
    if not is_elsewhere(node):
        return None
    found = node.graph.real_inputs.get(node.name)
    return None if found is None else found()


def run_on_inputs(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], leaf: type[Any]) -> Any:
    """Runs an operator on what traced tensors of another thread stand for.

    Args:
        func: The operator.
        args: Its arguments.
        kwargs: Its keyword arguments.
        leaf: The class of traced tensors.

    Raises:
        TraceError: One is no input of the call, or a gradient would be lost.
    """
    with_grad, graphs = False, list[Any]()

    def real(value: Any) -> Any:
        nonlocal with_grad
        if type(value) is not leaf or value.meta_tag is None or not is_elsewhere(value.meta_tag):
            return value
        found = real_input(value.meta_tag)
        if found is None:
            raise _refused(value.meta_tag.graph, _NO_INPUT.format(operator=func, line=user_line()))
        with_grad |= value.requires_grad
        graphs.append(value.meta_tag.graph)
        graphs[-1].is_read_elsewhere = True
        return found

    given, named = _torch.modules.map_tree(real, (args, kwargs))
    result = func(*given, **named)
    effects = effects_of(func)
    written = [argument_at(place, given, named) for place in effects.writes]
    if written:
        torch.autograd.graph.increment_version([x for x in written if isinstance(x, torch.Tensor)])
        returned = next((place for place in effects.returns_written if place is not None), None)
        return result if returned is None else argument_at(returned, args, kwargs)
    if with_grad and torch.is_grad_enabled() and func is not torch.ops.aten.detach.default and _is_real(result):
        raise _refused(graphs[0], _GRADIENTS.format(operator=func, line=user_line()))
    return result


def _refused(graph: Any, what: str) -> TraceError:
    """Makes an error that the thread which traces gets, too, where its function fails: it may wait for this one."""
    graph.refused_elsewhere = UnknownTensorError(what)
    return UnknownTensorError(what)


def _is_real(result: Any) -> bool:
    """Returns whether a result could have a gradient."""
    results = result if isinstance(result, tuple | list) else (result,)
    return any(isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()) for x in results)
