"""Shape rules for operators that run on CUDA, and that torch has no shape function for.

Each was compared with the operator on an H100, with torch 2.11.
"""

from __future__ import annotations

import torch

from subclass_aot.meta import register_meta

Tensor = torch.Tensor
_aten = torch.ops.aten

_SAVED_BY_A_GRU = 5
"""How many numbers the fused cell of a GRU saves for backward, for each of its state. Source: ATen's `RNN.cu`."""


@register_meta(_aten._thnn_fused_gru_cell.default)
def _(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    batch, width = hx.shape
    return hx.new_empty(hx.shape), hx.new_empty([batch, width * _SAVED_BY_A_GRU])


@register_meta(_aten._thnn_fused_gru_cell_backward.default)
def _(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    batch, saved = workspace.shape
    gates = 3 * (saved // _SAVED_BY_A_GRU)
    biases = [workspace.new_empty([gates]) if has_bias else None for _ in range(2)]
    return (*[workspace.new_empty([batch, gates]) for _ in range(2)], grad_hy.new_empty(grad_hy.shape), *biases)
