"""Sharded models without data beside the same on two processes. `test_sharded.py` starts the ranks of this script."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

import subclass_aot as sa
from subclass_aot.cost.profiling.allocator import changes_of
from tests import on_ranks


class Block(nn.Module):
    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)
        self.checkpointed = checkpointed

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(self.norm(x))))  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (checkpoint(self.computed, x, use_reentrant=False) if self.checkpointed else self.computed(x))


class Net(nn.Module):
    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(checkpointed) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def sharded(model: Net, mesh: DeviceMesh, **options: Any) -> Net:
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def parallel(model: Net, mesh: DeviceMesh) -> Net:
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def both(model: Net, mesh: DeviceMesh) -> Net:
    return sharded(parallel(model, mesh["tp"]), mesh["dp"])


PROGRAMS: dict[str, Callable[[DeviceMesh, DeviceMesh], nn.Module]] = {
    "FSDP2": lambda flat, grid: sharded(Net(), flat),
    "FSDP2, kept": lambda flat, grid: sharded(Net(), flat, reshard_after_forward=False),
    "FSDP2, bfloat16": lambda flat, grid: sharded(Net(), flat, mp_policy=MixedPrecisionPolicy(torch.bfloat16)),
    "FSDP2, columns": lambda flat, grid: sharded(Net(), flat, shard_placement_fn=lambda p: Shard(p.dim() - 1)),
    "FSDP2, checkpointed": lambda flat, grid: sharded(Net(checkpointed=True), flat),
    "hybrid": lambda flat, grid: sharded(Net(), grid),
    "tensor parallel": lambda flat, grid: parallel(Net(), flat),
    "both": lambda flat, grid: both(Net(), grid),
}


BY_GLOO = ("FSDP2", "FSDP2, bfloat16", "tensor parallel", "both")


def trained(make: Callable[[], nn.Module]) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], None]]:
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = torch.ones(32, 64)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()

    return model, optimizer, step


def compared(make: Callable[[], nn.Module]) -> dict[str, Any]:
    with sa.meta():
        model, _, step = trained(make)
        with sa.profile(model) as report:
            step()
    curve = report.timeline.curve()
    adds_up = all(sum(report.owners(when=n).values()) == curve[n] for n in range(0, len(curve), 7))
    real, _, step = trained(make)
    with sa.profile(real) as observed:
        step()
    runs = []
    for _ in range(3):  # torch's profiler misses some of what threads of gloo free
        real, _, step = trained(make)
        gc.collect()  # else what is left of the run before is freed in this one
        now = peak = report.timeline.before()
        for change in changes_of(step):
            now += change.nbytes
            peak = max(peak, now)
        runs.append((now - curve[-1], peak))
    missed, peak = min(runs)
    return {
        "peak": report.peak,
        "real": peak,
        "missed": missed,
        "sent": [report.communication(phase) for phase in ("forward", "recompute", "backward", "optimizer")],
        "really sent": [observed.communication(phase) for phase in ("forward", "recompute", "backward", "optimizer")],
        "flops": [report.flops(), observed.flops()],
        "kinds": report.owners(),
        "adds up": adds_up,
        "gradients": [report.gradients, observed.gradients],
    }


if __name__ == "__main__":
    with on_ranks.joined() as (rank, size, folder):
        flat = init_device_mesh("cpu", (size,))
        grid = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp", "tp"))
        for name in BY_GLOO:
            make = PROGRAMS[name]
            found: Any = {}
            error = on_ranks.wrong(lambda: found.update(compared(lambda: make(flat, grid))))  # noqa: B023
            on_ranks.tell(name, {"error": error, **found})
