"""A checkpoint of a model with wrappers, written and read by two ranks. `test_checkpoint.py` starts this script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import Int8Weight, TwoTensor
from subclass_aot.errors import StateDictError
from subclass_aot.files import unwrap_state_dict, wrap_state_dict
from subclass_aot.tensors import Sparse24Weight
from tests import on_ranks


class Model(nn.Module):
    """Weights of several classes; two are tied, one is sharded."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        make = torch.Generator().manual_seed(seed)
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))
        self.first.weight = nn.Parameter(Int8Weight.from_float(torch.randn(4, 4, generator=make)), requires_grad=False)
        self.second.weight = self.first.weight
        both = torch.randn(2, 4, 4, generator=make)
        self.third.weight = nn.Parameter(TwoTensor(both[0].clone(), both[1].t()))
        self.register_buffer("foreign", ForeignTwoTensor(both[0] + 1, both[1] + 1))
        for layer in (self.first, self.second, self.third):
            layer.bias = nn.Parameter(torch.randn(4, generator=make))

    def shard(self, mesh: Any, seed: int) -> Model:
        whole = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
        self.sharded = nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)]))
        half = TwoTensor(distribute_tensor(whole * 2, mesh, [Shard(0)]), distribute_tensor(whole * 3, mesh, [Shard(0)]))
        self.inside = nn.Parameter(half)
        return self


def leaves(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: value.to_local() if isinstance(value, DTensor) else value
        for name, value in unwrap_state_dict(model)[0].items()
    }


def same(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = leaves(one), leaves(other)
    return mine.keys() == theirs.keys() and all(mine[name].equal(theirs[name]) for name in mine)


def in_place(folder: Path, mesh: Any) -> bool:
    """What is loaded into the inner tensors, the wrappers have."""
    saved, other = Model(1).shard(mesh, 1), Model(2).shard(mesh, 2)
    assert not same(saved, other)
    dcp.save({"model": unwrap_state_dict(saved)[0]}, checkpoint_id=folder)
    weight: Any = other.first.weight
    dcp.load({"model": unwrap_state_dict(other)[0]}, checkpoint_id=folder)
    return same(saved, other) and other.first.weight is weight and other.second.weight is weight


def with_text(folder: Path, mesh: Any) -> bool:
    """The text beside the tensors is enough to make the wrappers."""
    saved, other = Model(1), Model(2)
    tensors, metadata = unwrap_state_dict(saved)
    dcp.save({"model": tensors, "metadata": metadata}, checkpoint_id=folder)
    found: dict[str, Any] = {
        "model": {name: torch.empty_like(tensor) for name, tensor in tensors.items()},
        "metadata": dict.fromkeys(metadata, ""),
    }
    dcp.load(found, checkpoint_id=folder)
    other.load_state_dict(wrap_state_dict(found["model"], found["metadata"], like=other))
    return same(saved, other)


def other_ranks(folder: Path, mesh: Any) -> bool:
    """Sharded inner tensors are whole again where they are read as such."""
    saved = Model(1).shard(mesh, 1)
    dcp.save({"model": unwrap_state_dict(saved)[0]}, checkpoint_id=folder)
    whole: Any = saved.inside
    found = {"inside.a": torch.empty(4, 4), "inside.b": torch.empty(4, 4), "sharded": torch.empty(4, 4)}
    dcp.load({"model": found}, checkpoint_id=folder)
    return found["inside.a"].equal(whole.a.full_tensor()) and found["inside.b"].equal(whole.b.full_tensor())


def refused(folder: Path, mesh: Any) -> bool:
    """A distributed tensor of wrappers that do not say how they are cut."""
    local = DTensor.from_local(Sparse24Weight.from_float(torch.ones(4, 4)), mesh, [Shard(0)])
    try:
        unwrap_state_dict({"weight": local})
    except StateDictError as error:
        return "weight is a DTensor of Sparse24Weight" in str(error) and "weight.to_local()" in str(error)
    return False


if __name__ == "__main__":
    with on_ranks.joined() as (_, count, place):
        for program in (in_place, with_text, other_ranks, refused):
            on_ranks.tell(program.__name__, program(place / program.__name__, init_device_mesh("cpu", (count,))))
