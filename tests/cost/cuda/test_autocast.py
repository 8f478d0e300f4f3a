"""Autocast for CUDA of tensors that claim it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import subclass_aot as sa
from subclass_aot.cost.cuda import autocast
from tests.cost.cuda.heard import Heard, without_cuda
from tests.torches import TORCH

HALF = torch.bfloat16
LISTS = [autocast.IN_HALF, autocast.IN_FLOAT32, autocast.TO_FLOAT32, list(autocast.NORMS), autocast.IN_WIDEST]


@without_cuda
@pytest.mark.skipif(TORCH != (2, 13), reason="the lists are those of one version of torch")
def test_the_lists_are_those_of_torch() -> None:
    names = torch._C._dispatch_get_all_op_names()
    torchs = {n for n in names if torch._C._dispatch_has_kernel_for_dispatch_key(n, "AutocastCUDA")}
    ours = {f"aten::{name}" for each in LISTS for name in each}
    refused, of_builds_with_cudnn = {"aten::binary_cross_entropy"}, {"aten::_cudnn_rnn"}
    assert {n for n in torchs if n.startswith("aten::")} - refused - of_builds_with_cudnn <= ours
    assert len(ours) == sum(map(len, LISTS))


PROGRAMS: list[tuple[Any, torch.dtype]] = [
    (lambda x: x @ x, HALF),
    (lambda x: F.linear(x, x, x[0]), HALF),
    (lambda x: torch.einsum("ij,jk->ik", x, x), HALF),
    (lambda x: torch.addmm(x, x.double().float(), x), HALF),
    (lambda x: F.conv2d(x[None, None], x[None, None, :2, :2]), HALF),
    (lambda x: (x @ x).exp(), torch.float32),
    (lambda x: (x @ x).softmax(0), torch.float32),
    (lambda x: (x @ x).softmax(0, dtype=torch.float64), torch.float64),
    (lambda x: (x @ x).sum(), torch.float32),
    (lambda x: (x @ x).sum(0, dtype=HALF), HALF),
    (lambda x: (x @ x).norm(), torch.float32),
    (lambda x: F.layer_norm(x @ x, [4]), torch.float32),
    (lambda x: F.cross_entropy(x @ x, torch.zeros(4, dtype=torch.int64)), torch.float32),
    (lambda x: (x @ x) + (x @ x), HALF),
    (lambda x: (x @ x) + x, torch.float32),
    (lambda x: torch.addcmul(x, x @ x, x @ x), torch.float32),
    (lambda x: torch.addcmul(x @ x, x @ x, x @ x), HALF),
    (lambda x: F.gelu(x @ x), HALF),
    (lambda x: F.scaled_dot_product_attention(*[x[None, None]] * 3), HALF),
    (lambda x: x.double() @ x.double(), torch.float64),
]


@pytest.mark.parametrize(("program", "dtype"), PROGRAMS)
def test_dtypes(program: Any, dtype: torch.dtype) -> None:
    with sa.meta("H100"):
        x = torch.empty(4, 4, requires_grad=True)
        with torch.autocast("cuda", HALF):
            y = program(x)
            with torch.autocast("cuda", enabled=False):
                assert (x @ x).dtype is torch.float32
        y.sum().backward()
        assert y.dtype is dtype and (x @ x).dtype is torch.float32
    assert x.grad is not None and x.grad.dtype is torch.float32


def test_the_default_is_float16_and_what_is_unsafe_is_refused() -> None:
    with sa.meta("H100"), torch.amp.autocast("cuda"):
        x = torch.empty(4, 4)
        assert (x @ x).dtype is torch.float16
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x, x)
        assert (torch.empty(4, 4, device="cpu") @ torch.empty(4, 4, device="cpu")).dtype is torch.float32


def test_weights_are_cast_once_and_forgotten() -> None:
    with Heard() as heard, sa.meta("H100"):
        layer, x = nn.Linear(100, 100, bias=False), torch.empty(4, 100, dtype=HALF)
        before = heard.now
        with torch.autocast("cuda", HALF):
            y = layer(x)
            y = layer(x)
            assert heard.names.count("_to_copy") == 1
        del y
        assert heard.now == before
        with torch.autocast("cuda", HALF, cache_enabled=False):
            layer(x)
            layer(x)
        assert heard.names.count("_to_copy") == 3


def test_a_model_trains() -> None:
    with sa.meta("H100"):
        model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            with torch.autocast("cuda"):
                loss = F.cross_entropy(model(torch.empty(8, 16)), torch.zeros(8, dtype=torch.int64))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert loss.dtype is torch.float32 and model[0].weight.dtype is torch.float32


@without_cuda
def test_recurrent_layers_are_cast() -> None:
    with Heard() as heard, sa.meta("H100"):
        layer = nn.LSTM(8, 16)
        with torch.autocast("cuda", HALF):
            y, _ = layer(torch.empty(5, 3, 8))
        y.sum().backward()
    assert y.dtype is HALF and layer.weight_ih_l0.grad is not None and layer.weight_ih_l0.grad.dtype is torch.float32
    assert "_cudnn_rnn_backward" in heard
