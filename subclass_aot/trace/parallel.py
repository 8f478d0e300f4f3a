"""Modules that talk to other ranks before and after their forward: what they do then is no part of a graph."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.errors import TraceError

_PARALLEL = """The traced function calls a {cls} that {wrapped}.
  It prepares parameters and reduces gradients in Python, at each call, and that is not part of a graph: from the
  second step on, ranks would differ.
  Instead: compile what is inside, and {wrapping} afterwards, as in
      module.block.forward = aot_compile(module.block.forward)
  for each block, or aot_compile the module before it is wrapped."""

_WRAPPINGS = {
    "DistributedDataParallel": ("is a DistributedDataParallel", "wrap it in DistributedDataParallel"),
    "FullyShardedDataParallel": ("is a FullyShardedDataParallel", "wrap it in FullyShardedDataParallel"),
    "fully_shard": ("was given to fully_shard", "call fully_shard"),
}


@contextmanager
def parallel_modules_are_refused() -> Iterator[None]:
    """Within the block, this thread calls no module that is distributed over ranks.

    Raises:
        TraceError: It does.
    """
    thread = threading.get_ident()

    def refuse(module: torch.nn.Module, args: Any) -> None:
        wrapped = _torch.is_parallel_wrapper(module) if threading.get_ident() == thread else None
        if wrapped is not None:
            is_wrapped, wrapping = _WRAPPINGS[wrapped]
            raise TraceError(_PARALLEL.format(cls=type(module).__name__, wrapped=is_wrapped, wrapping=wrapping))

    handle = torch.nn.modules.module.register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()
