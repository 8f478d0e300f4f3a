"""What a trace meets of recurrent layers. What it does of them is a subject: see `subjects/recurrent/lstm.py`."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.base.later import Later

LAYER: Any = torch.ops.aten.mkldnn_rnn_layer.default
"""One layer of an LSTM in oneDNN, in one direction."""

recorded_layer: Later[..., Any] = Later("lstm layer")
"""Records the operator that gives a workspace where `LAYER` would give one."""

network: Later[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None] = Later("lstm network")
"""Runs an LSTM as eager mode does, by one operator for each layer; None where oneDNN does not run it."""
