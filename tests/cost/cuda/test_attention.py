"""Which kernel computes attention, and what it keeps: by the sources of torch, since no GPU is here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

import subclass_aot as sa
from tests.cost.cuda.heard import Heard, without_cuda

pytestmark = without_cuda
CUDNN, FLASH = "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention"
EFFICIENT, MATH = "_scaled_dot_product_efficient_attention", "bmm"


def chosen(
    device: str, sizes: Any = (2, 4, 16, 32), dtype: Any = torch.bfloat16, grad: bool = True, **options: Any
) -> str:
    """Returns the kernel, and checks that backward is its own."""
    with Heard() as heard, sa.meta(device):
        q, k, v = [torch.empty(sizes, dtype=dtype).requires_grad_(grad) for _ in range(3)]
        mask = options.pop("mask", None)
        mask = None if mask is None else torch.empty(mask, dtype=options.pop("of", dtype))
        y = F.scaled_dot_product_attention(q, k, v, mask, **options)
        if grad:
            y.sum().backward()
            assert q.grad is not None and q.grad.shape == q.shape and q.grad.dtype is dtype
    assert y.shape == torch.Size(sizes)
    found = [name for name in (CUDNN, FLASH, EFFICIENT, MATH) if name in heard]
    assert len(found) == 1 and (not grad or found[0] == MATH or f"{found[0]}_backward" in heard)
    return found[0]


@pytest.mark.parametrize(
    ("device", "options", "expected"),
    [
        ("H100", {}, CUDNN),
        ("H100", {"is_causal": True}, CUDNN),
        ("H100", {"dropout_p": 0.1}, FLASH),  # cuDNN has sixteenths
        ("H100", {"dropout_p": 0.125}, CUDNN),
        ("H100", {"sizes": (2, 4, 16, 256)}, FLASH),
        ("H100", {"sizes": (2, 4, 16, 20)}, FLASH),  # padded to 24
        ("H100", {"mask": (16, 16), "of": torch.bool}, CUDNN),
        ("H100", {"dtype": torch.float32}, EFFICIENT),
        ("H100", {"dtype": torch.float32, "mask": (2, 4, 16, 16)}, EFFICIENT),
        ("H100", {"dtype": torch.float64}, MATH),
        ("A100", {}, FLASH),
        ("A100", {"grad": False}, FLASH),
        ("A100", {"dtype": torch.float16, "is_causal": True, "dropout_p": 0.1}, FLASH),
        ("A100", {"mask": (16, 16)}, EFFICIENT),
        ("A100", {"mask": (16, 16), "of": torch.bool}, EFFICIENT),
        ("A100", {"sizes": (2, 4, 16, 512)}, EFFICIENT),
        ("A100", {"sizes": (2, 4, 16, 260), "dtype": torch.float32}, EFFICIENT),
        ("A100", {"sizes": (2, 4, 16, 257), "dtype": torch.float32}, MATH),
        ("A100", {"sizes": (2, 4, 16, 200)}, FLASH),
        ("RTX 4090", {}, FLASH),
        ("RTX 4090", {"sizes": (2, 4, 16, 200)}, EFFICIENT),  # backward has no such kernel
        ("RTX 4090", {"sizes": (2, 4, 16, 200), "grad": False}, FLASH),
        ("RTX 4090", {"sizes": (2, 4, 16, 256), "dropout_p": 0.1}, EFFICIENT),
    ],
)
def test_the_kernel(device: str, options: dict[str, Any], expected: str) -> None:
    assert chosen(device, **options) == expected


def test_programs_may_turn_kernels_off() -> None:
    backends = torch.nn.attention.SDPBackend
    for backend, expected in {backends.MATH: MATH, backends.EFFICIENT_ATTENTION: EFFICIENT}.items():
        with torch.nn.attention.sdpa_kernel(backend):
            assert chosen("H100") == expected
    with torch.nn.attention.sdpa_kernel([backends.FLASH_ATTENTION, backends.MATH]):
        assert chosen("H100") == FLASH


@pytest.mark.parametrize(("device", "expected"), [("H100", CUDNN), ("A100", FLASH), ("cuda:1", CUDNN), ("cpu", None)])
def test_heads_in_groups(device: str, expected: str | None) -> None:
    with Heard() as heard, sa.meta(device):
        q, k, v = (torch.empty(2, n, 16, 32, dtype=torch.bfloat16, requires_grad=True) for n in (8, 2, 2))
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True).sum().backward()
    assert k.grad is not None and k.grad.shape == k.shape
    assert expected in heard if expected else not {CUDNN, FLASH, EFFICIENT} & set(heard.names)


def test_what_is_wrong_is_an_error() -> None:
    with sa.meta("H100"):
        q, mask = torch.empty(2, 4, 16, 32, dtype=torch.bfloat16), torch.empty(16, 16, dtype=torch.bool)
        with pytest.raises(RuntimeError, match="should not be set when is_causal=True"):
            F.scaled_dot_product_attention(q, q, q, mask, is_causal=True)
        with pytest.raises(RuntimeError, match="same dtype"):
            F.scaled_dot_product_attention(q, q.float(), q)


@pytest.mark.parametrize("device", ["H100", "A100", "RTX 4090"])
def test_half_precision_keeps_no_scores(device: str) -> None:
    sizes = (8, 16, 1024, 64)
    one, scores = 2 * 8 * 16 * 1024 * 64, 2 * 8 * 16 * 1024 * 1024
    with Heard() as heard, sa.meta(device):
        q, k, v = (torch.empty(sizes, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        y = F.scaled_dot_product_attention(q, k, v)
        assert heard.now - 4 * one < one / 8  # beside the result, one number in float32 for each row
        y.backward(y.detach())
    assert heard.peak < 8 * one < scores


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("inside", [True, False])
def test_a_checkpoint_takes_the_same_kernel_again(use_reentrant: bool, inside: bool) -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    with Heard() as heard, sa.meta("A100"):
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).bfloat16()
        x = torch.empty(2, 16, 32, dtype=torch.bfloat16, requires_grad=True)
        loss = checkpoint(layer, x, use_reentrant=use_reentrant).sum()
        if inside:
            loss.backward()
    if not inside:
        with heard:
            loss.backward()
    assert heard.names.count(FLASH) == 2 and heard.names.count(f"{FLASH}_backward") == 1
    assert x.grad is not None and x.grad.is_cuda


def test_in_inference_mode_and_in_a_transformer() -> None:
    for context in (torch.inference_mode, torch.no_grad):
        with Heard() as heard, sa.meta("A100"), context():
            q = torch.empty(2, 4, 16, 32, dtype=torch.bfloat16)
            assert F.scaled_dot_product_attention(q, q, q).shape == q.shape
        assert FLASH in heard
    with Heard() as heard, sa.meta("A100"):
        layer = nn.MultiheadAttention(32, 4, batch_first=True, dtype=torch.bfloat16)
        x = torch.empty(2, 16, 32, dtype=torch.bfloat16)
        layer(x, x, x, need_weights=False)
    assert FLASH in heard


def test_other_tensors_go_the_way_they_went() -> None:
    with sa.meta("H100"):
        torch.ones(1)
    q = torch.empty(2, 4, 16, 32, device="meta", requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    assert q.grad is not None and q.grad.shape == q.shape
    assert torch.dropout(q, 0.5, True).shape == q.shape and F.dropout(q, 0.5, False) is not None
