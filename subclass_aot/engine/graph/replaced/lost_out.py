"""Functions of torch that lose what they are given as `out=` in a trace.

`torch.linalg.matrix_rank` computes a new tensor where it is given one of a subclass. `torch.chain_matmul` leaves `out`
away when it calls modes for another implementation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from subclass_aot.base.variables import variables_of
from subclass_aot.engine.graph.recorder import Recorder

_aten = torch.ops.aten


def _matrix_rank(recorder: Recorder, *args: object, out: torch.Tensor | None = None, **kwargs: Any) -> Any:
    if out is None:
        return NotImplemented
    found = torch.linalg.matrix_rank(*args, **kwargs)
    if out.shape != found.shape:
        out.resize_(found.shape)
    torch.add(found, 0, out=out)  # refuses what it cannot be cast to
    return out


def _chain_matmul(recorder: Recorder, *matrices: torch.Tensor) -> Any:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not torch.chain_matmul.__code__:
        frame = frame.f_back
    out = None if frame is None else variables_of(frame)["out"]
    if out is None:
        return NotImplemented
    if len(matrices) > 1:
        return torch.linalg.multi_dot(matrices, out=out)
    if out.shape != matrices[0].shape:
        out.resize_(matrices[0].shape)
    return out.copy_(matrices[0])


_OVERLOADS = [getattr(_aten.linalg_matrix_rank, name) for name in _aten.linalg_matrix_rank.overloads()]

LOST_OUT: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.linalg.matrix_rank, _aten.linalg_matrix_rank, *_OVERLOADS), _matrix_rank),
    torch.chain_matmul: _chain_matmul,
}
"""What is called in their place, with the recorder as first argument."""
