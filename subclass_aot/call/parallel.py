"""Modules that talk to other ranks before and after their forward: what they do then is no part of a graph."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from subclass_aot import _torch
from subclass_aot.errors import TraceError

_PARALLEL = """The traced function calls a module, {cls}, that was given to {wrapping}.
  It gathers parameters or reduces gradients in Python, at each call, and that is no part of a graph: from the second
  step on, ranks would differ.
  Instead: compile the blocks inside. The module around them calls these as before, and each is an argument, so that
  it is found with the parameters that it has at each call:
      forward = aot_compile(type(block).forward)
      block.forward = functools.partial(forward, block)"""


def refuse_parallel(module: torch.nn.Module, wrapping: str | None) -> None:
    """Refuses a module that was given to `wrapping`, if it was given to something.

    Raises:
        TraceError: It was.
    """
    if wrapping is not None:
        name = type(getattr(module, "module", module)).__name__
        raise TraceError(_PARALLEL.format(cls=name, wrapping=wrapping))


@contextmanager
def parallel_modules_are_refused() -> Iterator[None]:
    """Within the block, this thread calls no module that is distributed over ranks.

    Raises:
        TraceError: It does.
    """
    thread = threading.get_ident()

    def refuse(module: torch.nn.Module, args: tuple[object, ...]) -> None:
        if threading.get_ident() == thread:
            refuse_parallel(module, _torch.is_parallel_wrapper(module))

    handle = torch.nn.modules.module.register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()
