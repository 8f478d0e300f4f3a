"""What two ranks do with wrappers: run with the rank and a file as arguments, it prints what went wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor import Shard as Rows
from torch.nn.functional import linear

import subclass_aot as sa
from tests import on_ranks
from tests.authors.j_shard import Int8Gathered, Shard

CASES: dict[str, Callable[[int], None]] = {}
WHOLE = torch.arange(16.0).reshape(4, 4) / 8
ONES = torch.ones(2, 4)


def case(name: str) -> Callable[[Callable[[int], None]], Callable[[int], None]]:
    def add(function: Callable[[int], None]) -> Callable[[int], None]:
        CASES[name] = function
        return function

    return add


def trained(kind: Callable[[torch.Tensor], Any], *, sharded: bool = True, compiled: bool = False) -> Any:
    """Two steps of AdamW on two layers, the weight of the first being of a class."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False))
    model[0].weight = nn.Parameter(kind(model[0].weight.detach().clone()))
    if sharded:
        fully_shard(model[0])
        fully_shard(model)
    if compiled:
        model[0].forward = sa.aot_compile(model[0].forward, fw_compiler="eager")
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    for seed in range(2):
        torch.manual_seed(seed)
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    return model[0].weight


@case("FSDP2 gathers a float weight in eight bits")
def _(rank: int) -> None:
    weight, plain = trained(Int8Gathered), trained(lambda w: w, sharded=False)
    assert type(weight.to_local()) is Int8Gathered and type(weight.grad.to_local()) is torch.Tensor
    local = weight.to_local().value.detach()
    assert not local.equal(plain.detach().chunk(2)[rank])  # it was rounded
    assert (local - plain.detach().chunk(2)[rank]).abs().mean() < 0.02


@case("FSDP2 gathers a float weight in eight bits, compiled")
def _(rank: int) -> None:
    compiled, eager = trained(Int8Gathered, compiled=True), trained(Int8Gathered)
    torch.testing.assert_close(compiled.to_local().value, eager.to_local().value)


@case("FSDP2 of a quantized weight, without hooks")
def _(rank: int) -> None:
    weight, whole = trained(sa.Int8Weight.from_float), trained(sa.Int8Weight.from_float, sharded=False)
    assert type(weight.to_local()) is sa.Int8Weight
    torch.testing.assert_close(weight.to_local().detach().to_plain(), whole.detach().to_plain().chunk(2)[rank])


def shard(rank: int) -> Any:
    return Shard(WHOLE.chunk(2)[rank].clone(), rank, 2)


@case("shard")
def _(rank: int) -> None:
    x = shard(rank)
    assert x.to_plain().equal(WHOLE) and x.shape == (4, 4)
    for mm in (torch.mm, sa.aot_compile(torch.mm, fw_compiler="eager")):
        torch.testing.assert_close(mm(ONES, x), ONES @ WHOLE)


@case("shard trains")
def _(rank: int) -> None:
    p, plain = nn.Parameter(shard(rank)), nn.Parameter(WHOLE.clone())
    step = sa.aot_compile(lambda x: (x * x).sum(), fw_compiler="eager")
    for parameter, loss in ((p, step), (plain, lambda x: (x * x).sum())):
        optimizer = torch.optim.AdamW([parameter], 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss(parameter).backward()
            optimizer.step()
    assert type(p.grad) is torch.Tensor
    torch.testing.assert_close(p.local, plain.detach().chunk(2)[rank])


@case("DTensor of wrappers")
def _(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2,))
    weight = sa.Int8Weight.from_float(WHOLE)
    local = DTensor.from_local(weight, mesh, [Rows(0)])
    assert type(local.to_local()) is sa.Int8Weight and local.shape == (8, 4)
    x = DTensor.from_local(ONES, mesh, [Replicate()])
    torch.testing.assert_close(linear(x, local).full_tensor(), linear(ONES, weight).repeat(1, 2))
    assert type(distribute_tensor(weight, mesh, [Rows(0)]).to_local()) is sa.Int8Weight


@case("wrappers of DTensors")
def _(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2,))
    part = distribute_tensor(WHOLE, mesh, [Rows(0)])
    doubled = sa.TwoTensor(part, part) * 2
    assert type(doubled.a) is DTensor and doubled.a.full_tensor().equal(WHOLE * 2)
    assert sa.aot_compile(lambda x: (x * 2).sum(0))(part).full_tensor().equal((WHOLE * 2).sum(0))
    leaf = part.detach().requires_grad_()
    sa.aot_compile(lambda x: (x * 2).sin())(leaf).sum().backward()
    torch.testing.assert_close(leaf.grad.full_tensor(), 2 * (WHOLE * 2).cos())


if __name__ == "__main__":
    with on_ranks.joined() as (rank, _, _):
        for name, function in CASES.items():
            on_ranks.tell(name, on_ranks.wrong(functools.partial(function, rank)))
            distributed.barrier()
