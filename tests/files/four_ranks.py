"""Checkpoints of sharded models that other numbers of ranks read. `test_checkpoint.py` starts four ranks of this.

Two of them are a mesh of their own, so that two write what four read, and the other way round.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from subclass_aot import Int8Weight, TwoTensor, train_fields
from subclass_aot.files import dense_state_dict, unwrap_state_dict, wrap_state_dict
from subclass_aot.tensors import LoraWeight
from tests import on_ranks


def model(seed: int) -> nn.Sequential:
    """Layers with frozen, adapted, paired and dense weights; eight rows, and nine, which no number of ranks divides."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 9), nn.Linear(9, 8), nn.Linear(8, 4))
    for layer in made[:2]:
        layer.weight = nn.Parameter(Int8Weight.from_float(layer.weight.detach()), requires_grad=False)
    low = LoraWeight.beside(Int8Weight.from_float(made[2].weight.detach()), rank=2)
    made[2].weight = nn.Parameter(low, requires_grad=False)
    train_fields(made[2], "weight", "left", "right")
    both = made[3].weight.detach()
    made[3].weight = nn.Parameter(TwoTensor(both.clone(), both * 2), requires_grad=False)
    return made


def sharded(made: nn.Sequential, mesh: DeviceMesh) -> nn.Sequential:
    for layer in made:
        fully_shard(layer, mesh=mesh)
    return fully_shard(made, mesh=mesh)  # type: ignore[return-value]


def whole(tensors: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in tensors.items()}


def columns(seed: int, mesh: DeviceMesh) -> dict[str, Any]:
    """Weights as of tensor parallelism: of columns, the scales of rows are on each rank."""
    weight = Int8Weight.from_float(torch.randn(8, 8, generator=torch.Generator().manual_seed(seed)))
    return {
        "columns": distribute_tensor(weight, mesh, [Shard(1)]),
        "rows": distribute_tensor(weight, mesh, [Shard(0)]),
        "copies": distribute_tensor(weight, mesh, [Replicate()]),
    }


def from_to(folder: Path, writers: DeviceMesh, readers: DeviceMesh) -> None:
    """Some ranks write a model, and others read it into theirs."""
    expected = unwrap_state_dict(model(1))[0]
    if writers.get_coordinate() is not None:
        saved = {
            "model": unwrap_state_dict(sharded(model(1), writers))[0],
            "more": unwrap_state_dict(columns(1, writers))[0],
        }
        assert saved["more"]["columns.scale"].placements == (Replicate(),)
        dcp.save(saved, checkpoint_id=folder, process_group=writers.get_group())
    dist.barrier()
    if readers.get_coordinate() is not None:
        other = sharded(model(2), readers)
        tensors, metadata = unwrap_state_dict(other)
        more, said = unwrap_state_dict(columns(2, readers))
        dcp.load({"model": tensors, "more": more}, checkpoint_id=folder, process_group=readers.get_group())
        found = whole(unwrap_state_dict(other)[0])
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert value.equal(found[name]), name
        x = torch.ones(2, 6)
        torch.testing.assert_close(other[:3](x), model(1)[:3](x))
        again = wrap_state_dict(tensors, metadata, like=other)
        assert type(again["0.weight"]) is DTensor and type(again["0.weight"].to_local()) is Int8Weight
        other.load_state_dict(again)
        theirs = columns(1, readers)
        for name, value in wrap_state_dict(more, said, like=columns(2, readers)).items():
            assert value.placements == theirs[name].placements
            assert value.to_local().to_plain().equal(theirs[name].to_local().to_plain()), name
            dense = dense_state_dict(theirs)[name]
            assert dense.to_local().equal(theirs[name].to_local().to_plain()) and dense.shape == (8, 8)
    dist.barrier()


if __name__ == "__main__":
    with on_ranks.joined() as (rank, _, place):
        two, four = DeviceMesh("cpu", [0, 1]), DeviceMesh("cpu", [0, 1, 2, 3])
        for name, writers, readers in (("two to four", two, four), ("four to two", four, two)):
            on_ranks.tell(name, on_ranks.wrong(lambda: from_to(place / name, writers, readers)))  # noqa: B023
