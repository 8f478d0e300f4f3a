"""Places for what a subject does of recurrent layers are filled."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import subclass_aot  # noqa: F401  # which says who fills them
from subclass_aot.engine.graph import recurrent


def test_a_layer_that_gives_no_workspace_is_recorded_as_it_is() -> None:
    with torch.no_grad():
        assert recurrent.recorded_layer() is NotImplemented


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="nothing runs in oneDNN here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_is_run_where_onednn_runs_it(dtype: torch.dtype) -> None:
    layer, x = nn.LSTM(3, 4, num_layers=2, dtype=dtype), torch.rand(5, 2, 3, dtype=dtype)
    states = [torch.zeros(2, 2, 4, dtype=dtype) for _ in range(2)]
    found = recurrent.network(x, states, [*layer.parameters()], True, 2, 0.0, False, False, False)
    assert (found is None) == (dtype is torch.float64)  # which oneDNN does not take
    if found is not None:
        torch.testing.assert_close(found[0], layer(x)[0])
