"""Rules of operators that run on CUDA, as an H100 gives their results."""

from __future__ import annotations

import pytest
import torch

import subclass_aot as sa

aten = torch.ops.aten


def test_the_fused_cell_of_a_gru() -> None:
    with sa.meta("cuda"):
        gates, state, bias = torch.empty(3, 48), torch.empty(3, 16), torch.empty(48)
        new, saved = aten._thnn_fused_gru_cell(gates, gates, state, bias, bias)
        gradients = aten._thnn_fused_gru_cell_backward(new, saved, True)
        without_bias = aten._thnn_fused_gru_cell_backward(new, saved, False)
    assert (new.shape, saved.shape) == ((3, 16), (3, 80))
    assert [tuple(x.shape) for x in gradients] == [(3, 48), (3, 48), (3, 16), (48,), (48,)]
    assert without_bias[3:] == (None, None)


def test_the_loss_of_ctc_is_computed_by_the_kernel_that_takes_all_lengths() -> None:
    with sa.meta("cuda"):
        log_probs, lengths = torch.empty(6, 2, 5), torch.tensor([6, 6])
        loss = torch.nn.functional.ctc_loss(log_probs, torch.ones(2, 2, dtype=torch.int64), lengths, lengths // 3)
    assert (loss.shape, loss.device.type) == ((), "cuda")


def test_what_is_pinned_has_the_strides_of_the_tensor() -> None:
    with sa.meta("cpu"):
        assert aten._pin_memory(torch.empty_strided((2, 3), (1, 2))).stride() == (1, 2)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_log_sigmoid_saves(device: str) -> None:
    with sa.meta(device):
        result, saved = aten.log_sigmoid_forward(torch.empty(20))
    assert (result.numel(), saved.numel()) == (20, 0 if device == "cuda" else 20)


def test_a_positional_device_is_that_of_the_result() -> None:
    with sa.meta("cuda"):
        there = torch.ops.prims.device_put(torch.empty(2, 3), torch.device("cpu"))
        back = torch.ops.prims.device_put(there, torch.device("cuda:1"))
    assert [str(x.device) for x in (there, back)] == ["cpu", "cuda:1"]
