"""Real tensors that require grad, of which a graph has no gradient."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.engine.graph import GraphListener, tape
from subclass_aot.errors import TraceError

_REQUIRES_GRAD = """A tensor that requires grad is used by the traced function without being an argument of it.
  Your line:  {line}
  The tensor: {kind} of shape {shape}
  It would become a constant of the graph, and its gradient would be lost.
  Instead: pass it as an argument, compile the module that owns it, or use tensor.detach() if no gradient is wanted."""


class LostGradients(GraphListener):
    """Refuses operators on real tensors that require grad; only `detach` may see one."""

    goes_on = True

    def __init__(self) -> None:
        self._met: torch.Tensor | None = None

    def note(self, tensor: torch.Tensor) -> None:
        """Notes a real tensor that requires grad among the arguments of the next operator."""
        self._met = tensor

    def on_operator(
        self,
        recorder: tape.Tape,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        if self._met is None:
            return
        tensor, self._met = self._met, None
        if func is not torch.ops.aten.detach.default:
            kind = "an nn.Parameter" if isinstance(tensor, torch.nn.Parameter) else "a tensor"
            raise TraceError(_REQUIRES_GRAD.format(line=user_line(), kind=kind, shape=list(tensor.shape)))

    def fork(self) -> LostGradients:
        return LostGradients()

    def forget(self) -> None:
        self._met = None
