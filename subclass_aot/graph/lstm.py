"""The LSTM of oneDNN where it is trained.

Note [The workspace of an LSTM]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Torch's operator for one layer gives what its backward reads, a workspace, only where grad mode is on, and nothing in
its schema says so. The graphs of a trace run where it is off. So a trace records another operator in its place, which
is the same and turns grad mode on. How large the workspace is, oneDNN knows and no formula of torch: the operator runs
once, on zeros, to learn it. Where sizes are symbols nobody can know, and the trace begins again without oneDNN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.graph.retrace import Retrace
from subclass_aot.meta import MetaTensor, call_on_meta, register_meta

LAYER: Any = torch.ops.aten.mkldnn_rnn_layer.default
"""One layer of an LSTM, in one direction."""

_NAME = "mkldnn_rnn_layer_for_training"


def before(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Returns the same decompositions of operators, and one of `LAYER` if it has none."""
    return {LAYER: _layer, **decompositions}


def _layer(*args: object) -> Any:
    """Records the operator that gives a workspace where `LAYER` would give one."""
    if not torch.is_grad_enabled():
        return NotImplemented
    if any(type(x) is MetaTensor and x.meta_spec.solver is not None for x in args):
        raise Retrace(fused_lstm=False)
    return FOR_TRAINING(*args)


def _run(*args: object) -> Any:
    with _torch.autograd.below_autograd(), torch.enable_grad():
        return _torch.operators.call_of(LAYER)(*args)


def _shapes(*args: object) -> Any:
    output, hy, cy, workspace = call_on_meta(LAYER, args, {})
    with (
        _torch.dispatch.disable_current_modes()
    ):  # inductor's tensors are fake, and so would zeros be that are made among them
        zeros = [torch.zeros(x.shape, dtype=x.dtype) if isinstance(x, torch.Tensor) else x for x in args]
        size = _run(*zeros)[3].shape
    return output, hy, cy, workspace.new_empty(size)


_library = torch.library.Library("subclass_aot", "FRAGMENT")
_library.define(str(_torch.operators.schema_of(LAYER)).replace("aten::mkldnn_rnn_layer", _NAME))
_library.impl(_NAME, _run, "CPU")
FOR_TRAINING: Any = getattr(torch.ops.subclass_aot, _NAME).default
"""`LAYER` in grad mode."""

register_meta(FOR_TRAINING)(_shapes)
torch.library.register_fake(f"subclass_aot::{_NAME}", _shapes, lib=_library)
