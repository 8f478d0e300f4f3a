"""What kernels and libraries take on CUDA: more than these in `tests/device_probes.json`, which an H100 has written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

import subclass_aot as sa
from subclass_aot.cost.devices import device_of
from subclass_aot.cost.profiling.on_cuda import gpu_of

MIB = 1 << 20


def workspaces(report: Any) -> list[int]:
    """Returns the workspaces that a run had, in its order."""
    return [x.nbytes for x in report.timeline.allocations if x.kinds[0][1] == "workspace"]


@pytest.mark.parametrize(("device", "kept"), [("H100", 32 * MIB), ("A100", 8_519_680), ("RTX 4090", 8_519_680)])
def test_a_block_is_on_the_gpu_that_is_claimed(device: str, kept: int) -> None:
    with sa.meta(device):
        layer, x = nn.Linear(8, 8), torch.empty(4, 8)
        with sa.profile(layer) as report:
            layer(x)
    assert workspaces(report) == [kept]


@pytest.mark.parametrize(("device", "kept"), [("H100", 32 * MIB), ("A100", 8_519_680), ("RTX 4090", 8_519_680)])
def test_what_cublas_keeps(device: str, kept: int) -> None:
    """One for the thread of the program, and one for that of autograd."""
    report = sa.profile(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), torch.empty(4, 8), device=device)
    assert workspaces(report).count(kept) == 2
    assert report.owners()["workspace"] == 2 * kept


def test_the_environment_says_what_cublas_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8")
    assert workspaces(sa.profile(nn.Linear(8, 8).eval(), torch.empty(4, 8), device="H100")) == [8_519_680]


def test_nothing_is_kept_without_products() -> None:
    assert not workspaces(sa.profile(lambda x: x.exp() + 1, torch.empty(4, 8), device="H100"))
    assert 32 * MIB not in workspaces(sa.profile(nn.Linear(8, 8), torch.empty(4, 8)))


def attention(kernel: SDPBackend, queries: int, heads: int, groups: int, width: int) -> list[int]:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        with sdpa_kernel(kernel):
            F.scaled_dot_product_attention(q, k, v, enable_gqa=groups != heads).sum().backward()

    with sa.meta("H100"):
        q, k, v = (torch.empty(2, n, queries, width, dtype=torch.bfloat16) for n in (heads, groups, groups))
        return workspaces(sa.profile(run, q.requires_grad_(), k, v, device="H100"))


def test_gradients_of_queries_are_in_float32() -> None:
    """The figures are those of an H100 at the batch of four."""
    alone = attention(SDPBackend.CUDNN_ATTENTION, 1024, 16, 16, 128)
    grouped = attention(SDPBackend.CUDNN_ATTENTION, 1024, 16, 4, 128)
    assert alone[-1] == 2 * 16 * 1024 * (128 + 1) * 4
    assert grouped[-1] == pytest.approx(67_371_520 // 2, abs=512)


@pytest.mark.parametrize(("queries", "splits"), [(130, 3), (4096, 0)])
def test_few_queries_share_the_keys(queries: int, splits: int) -> None:
    taken = attention(SDPBackend.FLASH_ATTENTION, queries, 8, 8, 256)
    parts = 4 * splits * 2 * 8 * queries * (256 + 1)
    assert (parts in [pytest.approx(x, abs=512) for x in taken]) == bool(splits)


def test_which_gpu() -> None:
    assert gpu_of(device_of("A100")).name == device_of("A100").name
    assert gpu_of(None).type == gpu_of(device_of("cpu")).type == "cuda"


def test_what_is_sorted_rests_on_one_gpu() -> None:
    table, words = nn.Embedding(1000, 256), torch.zeros(8192, dtype=torch.long)
    report = sa.profile(table, words, device="A100")
    assert any("embedding_dense_backward (1x): what it sorts in, by a formula" in line for line in report.unknown)
    few = sa.profile(table, words[:100], device="A100")
    assert not any("embedding" in line for line in few.unknown)
