"""What the figures leave out is said."""

import torch
from torch import nn

import subclass_aot as sa


def test_libraries_with_workspaces_are_named() -> None:
    report = sa.profile(nn.LSTM(4, 6), torch.randn(3, 2, 4))
    assert [line.split(":")[0] for line in report.unknown] == [
        "the workspace of mkldnn_rnn_layer (1x)",
        "the workspace of mkldnn_rnn_layer_backward (1x)",
    ]
    assert not sa.profile(nn.Linear(4, 6), torch.randn(3, 4)).unknown


def test_what_cuda_takes_beside_is_said() -> None:
    unknown = " ".join(sa.profile(nn.Linear(4, 6), torch.randn(3, 4), device="H100").unknown)
    assert "beside torch's allocator" in unknown
