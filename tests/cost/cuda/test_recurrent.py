"""Recurrent layers on CUDA."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from tests.cost.cuda.heard import Heard, without_cuda

pytestmark = without_cuda


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}]
)
def test_a_layer_is_one_operator(cls: Any, options: dict[str, Any]) -> None:
    for device in ("H100", "cpu"):
        with Heard() as heard, sa.meta(device):
            layer, x = cls(8, 16, **options), torch.empty(5, 3, 8, requires_grad=True)
            result, state = layer(x)
            result.sum().backward()
        found = result.shape, [s.shape for s in (state if isinstance(state, tuple) else [state])]
        if device == "H100":
            assert heard.names.count("_cudnn_rnn") == heard.names.count("_cudnn_rnn_backward") == 1
            expected = found
        else:
            assert found == expected and "_cudnn_rnn" not in heard
        assert all(p.grad is not None and p.grad.shape == p.shape for p in (x, *layer.parameters()))


def test_packed_sequences_and_projections() -> None:
    with Heard() as heard, sa.meta("H100"):
        layer = nn.LSTM(8, 16, proj_size=4)
        packed = nn.utils.rnn.pack_padded_sequence(torch.empty(5, 3, 8), torch.tensor([5, 3, 2], device="cpu"))
        result, (hidden, cell) = layer(packed)
        result.data.sum().backward()
        padded, _ = nn.utils.rnn.pad_packed_sequence(result)
    assert (result.data.shape, hidden.shape, cell.shape) == ((10, 4), (1, 3, 4), (1, 3, 16))
    assert padded.shape == (5, 3, 4) and "_cudnn_rnn" in heard


def test_training_keeps_a_reserve() -> None:
    kept = {}
    for train in (True, False):
        with Heard() as heard, sa.meta("H100"):
            layer = nn.LSTM(8, 16).train(train)
            before = heard.now
            with torch.set_grad_enabled(train):
                y = layer(torch.empty(5, 3, 8))
            kept[train] = heard.now - before
            assert y[0].shape == (5, 3, 16)
    assert kept[True] >= kept[False] + 5 * 3 * 16 * 5 * 4  # at least the gates and the cell


def test_without_cudnn_it_is_made_of_operators() -> None:
    with Heard() as heard, sa.meta("H100"), torch.backends.cudnn.flags(enabled=False):
        nn.GRU(8, 16)(torch.empty(5, 3, 8))
    assert "_cudnn_rnn" not in heard
