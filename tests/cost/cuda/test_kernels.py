"""What CUDA does with other operators: dropout, foreach optimizers, weight norm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import subclass_aot as sa
from tests.cost.cuda.heard import Heard, without_cuda
from tests.torches import TORCH

pytestmark = without_cuda


def test_dropout_keeps_a_mask_of_one_byte() -> None:
    for device, names, kept in (("H100", {"native_dropout"}, 100), ("cpu", {"bernoulli_", "div_", "mul"}, 400)):
        with Heard() as heard, sa.meta(device):
            x = torch.empty(100, requires_grad=True)
            y = F.dropout(x, 0.5)
            assert heard.now == 800 + kept
            y.sum().backward()
        del x, y
        assert names <= set(heard.names)
    with Heard() as heard, sa.meta("H100"):
        x = torch.empty(100)
        assert F.dropout(x, 0.0).shape == F.dropout(x, 1.0).shape == F.dropout(x, 0.5, training=False).shape == x.shape
    assert "native_dropout" not in heard


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Adadelta", "Adamax"])
def test_optimizers_compute_with_lists(name: str) -> None:
    options: dict[str, Any] = {"momentum": 0.9} if name == "SGD" else {}
    for device, by_lists in (("H100", True), ("cpu", False)):
        with Heard() as heard, sa.meta(device):
            layer = nn.Linear(10, 10)
            optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.1, **options)
            for _ in range(2):
                layer(torch.empty(2, 10)).sum().backward()
                nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        assert "_foreach_norm" in heard  # to clip, that is the way of a CPU, too
        if TORCH == (2, 13):  # others cast the counters of more
            assert "_to_copy" not in heard or name in ("Adagrad", "NAdam", "Adamax")  # which cast their counters
        assert any(op.startswith("_foreach_add") for op in heard.names) == by_lists
        assert all(x.device.type == layer.weight.device.type for s in optimizer.state.values() for x in s.values()
                   if isinstance(x, torch.Tensor) and x.dim())  # fmt: skip


def test_lists_of_an_optimizer_cost_as_much_as_the_parameters() -> None:
    peaks = {}
    for foreach in (None, False):
        with Heard() as heard, sa.meta("H100"):
            layers = nn.Sequential(*[nn.Linear(100, 100, bias=False) for _ in range(10)])
            optimizer = torch.optim.AdamW(layers.parameters(), foreach=foreach)
            layers(torch.empty(1, 100)).sum().backward()
            optimizer.step()
            before, heard.peak = heard.now, heard.now
            optimizer.step()
            peaks[foreach] = heard.peak - before
    assert peaks[None] >= 400_000 and peaks[False] <= 120_000  # all parameters, and three of them


def test_fused_optimizers() -> None:
    for name in ("Adam", "AdamW", "SGD"):
        with Heard() as heard, sa.meta("H100"):
            layer = nn.Linear(10, 10)
            optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.1, fused=True)
            layer(torch.empty(2, 10)).sum().backward()
            optimizer.step()
        assert f"_fused_{name.lower()}_" in heard


def test_weight_norm_has_a_kernel() -> None:
    with Heard() as heard, sa.meta("H100"):
        layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        layer(torch.empty(2, 4)).sum().backward()
    assert "_weight_norm_interface" in heard


def test_softmax_of_float16_to_float32_makes_no_copy() -> None:
    for dtype, copied in ((torch.float16, False), (torch.bfloat16, True)):
        with Heard() as heard, sa.meta("H100"):
            x = torch.empty(4, 4, dtype=dtype, requires_grad=True)
            y = x.softmax(-1, dtype=torch.float32)
            assert y.dtype is torch.float32 and ("_to_copy" in heard) == copied
            y.sum().backward()
            assert x.grad is not None and x.grad.dtype is dtype
