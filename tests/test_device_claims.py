"""Rules by device: what a claim of an H100 has, which is written down, and what the hardware has.

In a build without CUDA the first is checked. `SUBCLASS_AOT_TEST_DEVICE=cuda make test-device` on an H100 compares them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from subclass_aot.cost.cuda.attention import Call, chosen
from subclass_aot.cost.cuda.profile import claimed as claims
from subclass_aot.cost.devices import claim_of
from tests import device_claims
from tests.device import DEVICE
from tests.torches import TORCH

IS_CUDA = torch.device(DEVICE).type == "cuda"
NAMES = sorted(device_claims.STEPS)
on_h100 = pytest.mark.skipif(
    not IS_CUDA or torch.cuda.get_device_name() != device_claims.PRODUCT, reason="compares with an H100"
)


@pytest.mark.skipif(torch.cuda.is_available(), reason="where CUDA is, its own kernels choose")
@pytest.mark.skipif(TORCH != (2, 13), reason="written with one version of torch")
@pytest.mark.parametrize("name", NAMES)
def test_claims_are_as_written(name: str) -> None:
    assert device_claims.claimed(name) == json.loads(device_claims.FILE.read_text())[name]


@on_h100
@pytest.mark.parametrize("name", NAMES)
def test_operators_on_the_hardware(name: str) -> None:
    assert device_claims.real(name)["operators"] == _said(name)["operators"]


@on_h100
@pytest.mark.parametrize("name", NAMES)
def test_peaks_on_the_hardware(name: str) -> None:
    real, said = device_claims.real(name)["peak"], _said(name)["peak"]
    if name == "lstm":  # a report says that the workspace of cuDNN is not known
        assert said < real
    else:
        assert real == pytest.approx(said, rel=0.05)


def _said(name: str) -> dict[str, Any]:
    """Returns what is written, or with another version of torch what is said there."""
    if TORCH != (2, 13):
        return device_claims.claimed(name)
    return json.loads(device_claims.FILE.read_text())[name]  # type: ignore[no-any-return]


@on_h100
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("width", [20, 32, 64, 128, 192, 200, 256, 264])
@pytest.mark.parametrize("grad", [False, True])
def test_the_kernel_for_attention_on_the_hardware(dtype: torch.dtype, width: int, grad: bool) -> None:
    claims.profile = claim_of(device_claims.CLAIM)[1]
    q, k, v = (torch.randn(2, 4, 16, width, dtype=dtype, device="cuda", requires_grad=grad) for _ in range(3))
    for mask in (None, torch.zeros(16, 16, dtype=dtype, device="cuda")):
        for dropout in (0.0, 0.1, 0.125):
            for is_causal in (False, True) if mask is None else (False,):
                found = chosen(Call(q, k, v, mask, dropout, is_causal, None, False))
                assert found == torch._fused_sdp_choice(q, k, v, mask, dropout, is_causal)


@on_h100
def test_what_cudnn_keeps_of_a_recurrent_layer_on_the_hardware() -> None:
    """The message has the numbers for each step and state."""
    kept = {}
    for cls in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU):
        layer, x = cls(128, 256, device="cuda"), torch.randn(100, 64, 128, device="cuda", requires_grad=True)
        node = layer(x)[0].grad_fn
        kept[cls.__name__] = node._saved_result3.numel() / (100 * 64 * 256 * 4)
    assert {name: round(number) for name, number in kept.items()} == {"RNN": 1, "LSTM": 5, "GRU": 6}, kept
