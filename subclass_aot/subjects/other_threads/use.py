"""What another thread does with a traced tensor that it meets: the input that it stands for is used in its place."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.errors import TraceError, UnknownTensorError
from subclass_aot.meta import MetaTensor, places, threads

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


@places.refuse_made_elsewhere.put
def refuse_made_elsewhere(tensor: torch.Tensor) -> None:
    """Refuses a real tensor that another thread has computed with tensors of a trace.

    Raises:
        TraceError: Always.
    """
    raise TraceError(_MADE_ELSEWHERE.format(shape=list(tensor.shape), line=user_line()))


@places.run_on_inputs.put
def run_on_inputs(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs an operator on what traced tensors of another thread stand for.

    Args:
        func: The operator.
        args: Its arguments.
        kwargs: Its keyword arguments.

    Raises:
        TraceError: One is no input of the call, or a gradient would be lost.
    """
    with_grad, graphs = False, list[Any]()

    def real(value: object) -> Any:
        nonlocal with_grad
        if type(value) is not MetaTensor or value.meta_tag is None or not threads.is_elsewhere(value.meta_tag):
            return value
        found = threads.real_input(value.meta_tag)
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


def _refused(graph: fx.Graph, what: str) -> TraceError:
    """Makes an error that the thread which traces gets, too, where its function fails: it may wait for this one."""
    graph.refused_elsewhere = UnknownTensorError(what)  # type: ignore[attr-defined]
    return UnknownTensorError(what)


def _is_real(result: object) -> bool:
    """Returns whether a result could have a gradient."""
    results = result if isinstance(result, tuple | list) else (result,)
    return any(isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()) for x in results)
