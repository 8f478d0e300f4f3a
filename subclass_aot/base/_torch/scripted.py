"""Functions of TorchScript that write the memory of tensors which have none while a program is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from subclass_aot.base._torch.stand_ins import stands_in
from subclass_aot.errors import TraceError

_NO_MEMORY = """{name} is a function of TorchScript, and its interpreter writes what {what} makes into memory.
  While a program is traced, tensors have no memory, and the process would crash.
  Instead: leave `torch.jit.script` off, or pass such tensors as arguments."""

_WRITERS = ("aten::tensor", "aten::as_tensor")
"""Operators of TorchScript that make a tensor of a list, and write its elements by their address."""


class _Done(NamedTuple):
    """What `torch.jit.fork` gives for a function that has run."""

    value: Any


@stands_in(torch._C.ScriptFunction, "__call__")
def _called(torchs: Callable[..., Any], self: Any, *args: object, **kwargs: object) -> Any:
    """Calls a function of TorchScript in Python if the interpreter would write such memory.

    The interpreter runs in C++, calls operators through the dispatcher, and trusts what `empty` gives. A function that
    was scripted has the Python function that it was made of, in the attribute that Dynamo inlines. `torch.jit.fork`
    takes functions to C++ as well, so it calls them at once. When these names go: such functions crash the process.
    """
    what = _written_by(self)
    if what is None:
        return torchs(self, *args, **kwargs)
    inlined = getattr(self, "_torchdynamo_inline", None)
    if inlined is None:
        raise TraceError(_NO_MEMORY.format(name=self.name, what=what))
    return inlined(*args, **kwargs)


@stands_in(torch._C.ScriptMethod, "__call__")
def _called_method(torchs: Callable[..., Any], self: Any, *args: object, **kwargs: object) -> Any:
    if (what := _written_by(self)) is not None:
        raise TraceError(_NO_MEMORY.format(name=self.name, what=what))
    return torchs(self, *args, **kwargs)


@stands_in(torch._C, "fork")
def _forked(torchs: Callable[..., Any], function: Callable[..., Any], *args: object, **kwargs: object) -> _Done:
    return _Done(function(*args, **kwargs))


@stands_in(torch._C, "wait")
def _waited(torchs: Callable[..., Any], future: object) -> Any:
    return future.value if isinstance(future, _Done) else torchs(future)


def _written_by(scripted: Any) -> str | None:
    """Returns the operator by which a scripted function writes memory, or hands functions to other threads."""
    try:
        graph = scripted.inlined_graph
    except RuntimeError:  # a method of a class in C++ has no graph (`ProcessGroup.allreduce`)
        return None
    for name in _WRITERS:
        for node in graph.findAllNodes(name, recurse=True):
            if next(node.inputs()).type().kind() == "ListType":
                return f"torch.{name.rpartition(':')[2]}"
    return "torch.jit.fork" if graph.findNode("prim::fork", recurse=True) is not None else None
