"""Steps of training on a GPU, as a claim has them and as the hardware has them: operators, and the peak of memory.

`python -m tests.device_claims` writes what a claim of an H100 has, in a build without CUDA, into `device_claims.json`;
`tests/test_device_claims.py` compares that with this build, and on an H100 with what runs there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import subclass_aot as sa
from subclass_aot.base import _torch
from subclass_aot.meta import Listener

FILE = Path(__file__).with_suffix(".json")
CLAIM, PRODUCT = "H100", "NVIDIA H100 80GB HBM3"
Step = Callable[[], object]


def transformer_bfloat16() -> Step:
    layer = nn.TransformerEncoderLayer(512, 8, dropout=0.1, batch_first=True, dtype=torch.bfloat16, device="cuda")
    return _training(layer, torch.randn(4, 1024, 512, dtype=torch.bfloat16, device="cuda"))


def transformer_checkpointed() -> Step:
    layer = nn.TransformerEncoderLayer(512, 8, dropout=0.0, batch_first=True, dtype=torch.bfloat16, device="cuda")
    x = torch.randn(4, 1024, 512, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    return _training(layer, x, lambda x: checkpoint(layer, x, use_reentrant=False))


def masked_attention_float32() -> Step:
    layer = nn.MultiheadAttention(256, 4, batch_first=True, device="cuda")
    x, mask = torch.randn(4, 512, 256, device="cuda"), torch.zeros(512, 512, device="cuda")
    return _training(layer, x, lambda x: layer(x, x, x, attn_mask=mask, need_weights=False)[0])


def mlp_in_autocast() -> Step:
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(4096), nn.Linear(4096, 1024))
    model, x = model.cuda(), torch.randn(2048, 1024, device="cuda")

    def loss(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return F.mse_loss(model(x), x)

    return _training(model, x, loss)


def lstm() -> Step:
    layer = nn.LSTM(128, 256, 2, batch_first=True, device="cuda")
    return _training(layer, torch.randn(64, 100, 128, device="cuda"), lambda x: layer(x)[0])


def mlp_clipped() -> Step:
    model = nn.Sequential(*[nn.Linear(1024, 1024, device="cuda") for _ in range(8)])
    return _training(model, torch.randn(64, 1024, device="cuda"))


STEPS: dict[str, Callable[[], Step]] = {
    f.__name__: f
    for f in (
        transformer_bfloat16,
        transformer_checkpointed,
        masked_attention_float32,
        mlp_in_autocast,
        lstm,
        mlp_clipped,
    )
}


def _training(model: nn.Module, x: torch.Tensor, forward: Any = None) -> Step:
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        (forward or model)(x).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def claimed(name: str) -> dict[str, Any]:
    """Returns what the second step has, without data."""
    with _Claimed() as found, sa.meta(CLAIM):
        step = STEPS[name]()
        step()
        found.names = Counter()
        with sa.profile(nn.Module(), device=CLAIM) as report:
            step()
    curve = report.timeline.curve()
    return {"peak": max(curve) - curve[0], "operators": _compared(found.names)}


def real(name: str) -> dict[str, Any]:
    """Returns what the second step has on the GPU."""
    step = STEPS[name]()
    step()
    torch.cuda.synchronize()
    _torch.cuda.free_library_workspaces()
    base = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    peak = torch.cuda.max_memory_allocated() - base
    with torch.autograd.set_multithreading_enabled(False), _Real() as found:
        step()
    return {"peak": peak, "operators": _compared(found.names)}


def _compared(names: Counter[str]) -> dict[str, int]:
    """Returns the operators by which devices differ: no views, and nothing that eager makes on the way."""
    told = ("attention", "dropout", "rnn", "_foreach", "norm", "softmax", "mm", "bernoulli", "_to_copy")
    return {name: count for name, count in sorted(names.items()) if any(word in name for word in told)}


class _Claimed(Listener):
    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def on_operator(self, operation: Any) -> None:
        self.names[operation.func.overloadpacket.__name__] += 1


class _Real(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: claimed(name) for name in STEPS}, indent=1) + "\n")
