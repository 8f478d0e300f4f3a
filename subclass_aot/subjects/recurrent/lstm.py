"""The LSTM of oneDNN where it is trained.

Note [The workspace of an LSTM]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Torch's operator for one layer gives what its backward reads, a workspace, only where grad mode is on, and nothing in
its schema says so. The graphs of a trace run where it is off. So a trace records another operator in its place, which
is the same and turns grad mode on. How large the workspace is, oneDNN decides and no formula of torch has: the operator
runs once, on zeros, to find out. Where sizes are symbols, so is that of the workspace, as one that depends on data.
For those, torch has the network in Python, and that one goes step by step where gradients are computed, so that each
length would be compiled. `network` goes layer by layer, as the kernel in C++ does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.graph import recurrent
from subclass_aot.meta import MetaTensor, call_on_meta, register_meta

LAYER = recurrent.LAYER
_NAME = "mkldnn_rnn_layer_for_training"


@recurrent.recorded_layer.put
def _layer(*args: object) -> Any:
    """Records the operator that gives a workspace where `LAYER` would give one."""
    if not torch.is_grad_enabled():
        return NotImplemented
    has_symbols = any(type(x) is MetaTensor and x.meta_spec.solver is not None for x in args)
    return (OF_ANY_SIZE if has_symbols else FOR_TRAINING)(*args)


@recurrent.network.put
def network(  # noqa: PLR0913  # those of the operator
    x: torch.Tensor,
    hx: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Runs an LSTM as eager mode does, by one operator for each layer and direction; None where oneDNN does not run it.

    The arguments are those of `aten.lstm.input`.
    """
    states, directions = [state.contiguous() for state in hx], 2 if bidirectional else 1
    if not _runs_in_onednn([x, *hx, *params]) or len(params) != num_layers * directions * (4 if has_biases else 2):
        return None  # with projections there are more
    how = has_biases, bidirectional, batch_first, train
    last: list[tuple[torch.Tensor, torch.Tensor]] = []
    each = iter(params)
    x = (x.transpose(0, 1) if batch_first else x).contiguous()
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            weights = [next(each), next(each)]
            biases = [next(each), next(each)] if has_biases else [torch.zeros_like(weight) for weight in weights]
            h, c = (state[layer * directions + direction] for state in states)
            is_reverse, size = direction > 0, h.size(-1)
            output, h, c, _ = LAYER(x, *weights, *biases, h, c, is_reverse, [], _LSTM, size, num_layers, *how)
            outputs.append(output)
            last.append((h, c))
        x = torch.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and train and layer < num_layers - 1:
            x = torch.dropout(x, dropout, True)
    h, c = (torch.stack(state) for state in zip(*last, strict=True))
    return x.transpose(0, 1) if batch_first else x, h, c


_LSTM = 2
"""What oneDNN calls this kind of network."""


def _runs_in_onednn(tensors: Sequence[torch.Tensor]) -> bool:
    """Returns whether eager mode gives an LSTM of these tensors to oneDNN."""
    is_on = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    if not is_on or {x.device.type for x in tensors} != {"cpu"}:
        return False
    dtypes = {x.dtype for x in tensors}
    return dtypes == {torch.float32} or dtypes == {torch.bfloat16} and _torch.flags.onednn_takes_bfloat16()


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


def _shapes_of_any_size(*args: object) -> Any:
    *results, workspace = call_on_meta(LAYER, args, {})
    return *results, workspace.new_empty([torch.library.get_ctx().new_dynamic_size(min=2)])


_library = torch.library.Library("subclass_aot", "FRAGMENT")
for name, shapes in ((_NAME, _shapes), (_NAME + "_of_any_size", _shapes_of_any_size)):
    _library.define(str(_torch.operators.schema_of(LAYER)).replace("aten::mkldnn_rnn_layer", name))
    _library.impl(name, _run, "CPU")
    torch.library.register_fake(f"subclass_aot::{name}", shapes, lib=_library)
FOR_TRAINING: Any = getattr(torch.ops.subclass_aot, _NAME).default
"""`LAYER` in grad mode."""
OF_ANY_SIZE: Any = getattr(torch.ops.subclass_aot, _NAME + "_of_any_size").default
"""The same, with sizes that are symbols."""

register_meta(FOR_TRAINING)(_shapes)
