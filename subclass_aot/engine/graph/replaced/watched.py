"""Notes, while tracing, where a program registers hooks on tensors: autograd does not say where there are any.

Its own record, `_backward_hooks`, is gone with the tensor; the hooks stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.graph.recorder import Recorder


def _watch(recorder: Recorder, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    node: Any = x.grad_fn
    if node is not None:
        _torch.autograd.note_hooks(node)
    return NotImplemented


WATCHED: dict[Any, Callable[..., Any]] = {torch.Tensor.register_hook: _watch, torch.Tensor.retain_grad: _watch}
"""What is called in their place, with the recorder as first argument."""
