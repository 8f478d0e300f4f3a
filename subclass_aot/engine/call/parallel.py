"""Modules that talk to other ranks before and after their forward: what they do then is no part of a graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.stand_ins import hooks_in, stands_in
from subclass_aot.errors import TraceError

_PARALLEL = """The traced function calls a module, {cls}, that was given to {wrapping}.
  It gathers parameters or reduces gradients in Python, at each call, and that is no part of a graph: from the second
  step on, ranks would differ.
  Instead: compile what is inside. The module around calls it as before, with the parameters that it has at each call:
      compile_blocks(model)  # equal blocks once; or of one block:
      block.forward = functools.partial(aot_compile(type(block).forward), block)
  Inside of DistributedDataParallel, all may be compiled: model.forward = aot_compile(model.forward)"""


def refuse_parallel(module: torch.nn.Module, wrapping: str | None) -> None:
    """Refuses a module that was given to `wrapping`, if it was given to something.

    Raises:
        TraceError: It was.
    """
    if wrapping is not None:
        name = type(getattr(module, "module", module)).__name__
        raise TraceError(_PARALLEL.format(cls=name, wrapping=wrapping))


def refuse_parallel_method(fn: Callable[..., Any]) -> None:
    """Refuses a method of a module whose `forward` talks to other ranks itself, which was bound before a trace.

    Raises:
        TraceError: It is one.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module) and isinstance(owner, tuple(_torch.modules.parallel_forwards())):
        refuse_parallel(owner, _torch.modules.is_parallel_wrapper(owner))


@hooks_in(torch.nn.modules.module.register_module_forward_pre_hook)
def _called(module: torch.nn.Module, args: tuple[object, ...]) -> None:
    """Refuses a module that is distributed over ranks, where a traced program calls it.

    Raises:
        TraceError: It is one.
    """
    refuse_parallel(module, _torch.modules.is_parallel_wrapper(module))


@stands_in(torch.nn.parallel.DistributedDataParallel, "forward")
@stands_in(torch.nn.DataParallel, "forward")
@stands_in("torch.distributed.fsdp:FullyShardedDataParallel", "forward")
def _forward(torchs: Callable[..., Any], module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Refuses a module whose `forward` talks to other devices, also where that is not called through the module."""
    refuse_parallel(module, _torch.modules.is_parallel_wrapper(module))
    return torchs(module, *args, **kwargs)
