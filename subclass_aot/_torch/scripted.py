"""Functions of TorchScript that write the memory of tensors which have none while a program is traced."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from subclass_aot.errors import TraceError
from subclass_aot.put_back import PutBack, attributes_put_back

_NO_MEMORY = """{name} is a function of TorchScript, and its interpreter writes what {what} makes into memory.
  While a program is traced, tensors have no memory, and the process would crash.
  Instead: leave `torch.jit.script` off, or pass such tensors as arguments."""

_WRITERS = ("aten::tensor", "aten::as_tensor")
"""Operators of TorchScript that make a tensor of a list, and write its elements by their address."""


class _Done(NamedTuple):
    """What `torch.jit.fork` gives for a function that has run."""

    value: Any


@contextmanager
def scripted_functions_write_no_memory() -> Iterator[None]:
    """Runs the block with TorchScript's functions called in Python if their interpreter would write such memory.

    The interpreter runs in C++, calls operators through the dispatcher, and trusts what `empty` gives. A function that
    was scripted has the Python function that it was made of, in the attribute that Dynamo inlines. `torch.jit.fork`
    takes functions to C++ as well, so it calls them at once. When these names go: such functions crash the process.
    """
    function, method = torch._C.ScriptFunction, torch._C.ScriptMethod
    places = [(function, "__call__"), (method, "__call__"), (torch._C, "fork"), (torch._C, "wait")]
    thread = threading.get_ident()
    kept: list[Callable[..., Any]] = [getattr(holder, name) for holder, name in places]
    call, call_method, fork, wait = kept

    def called(self: Any, *args: object, **kwargs: object) -> Any:
        if threading.get_ident() != thread or (what := _written_by(self)) is None:
            return call(self, *args, **kwargs)
        inlined = getattr(self, "_torchdynamo_inline", None)
        if inlined is None:
            raise TraceError(_NO_MEMORY.format(name=self.name, what=what))
        return inlined(*args, **kwargs)

    def called_method(self: Any, *args: object, **kwargs: object) -> Any:
        if threading.get_ident() == thread and (what := _written_by(self)) is not None:
            raise TraceError(_NO_MEMORY.format(name=self.name, what=what))
        return call_method(self, *args, **kwargs)

    def forked(function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        here = threading.get_ident() == thread
        return _Done(function(*args, **kwargs)) if here else fork(function, *args, **kwargs)

    def waited(future: object) -> Any:
        return future.value if isinstance(future, _Done) else wait(future)

    with PutBack(attributes_put_back(places)):
        others: list[Callable[..., Any]] = [called, called_method, forked, waited]
        for (holder, name), other in zip(places, others, strict=True):
            setattr(holder, name, functools.update_wrapper(other, getattr(holder, name)))
        yield


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
