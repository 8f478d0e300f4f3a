"""Bytes of collectives, by ring algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import subclass_aot as sa

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")


@pytest.fixture(autouse=True)
def four() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    dist.destroy_process_group()


def gathered() -> None:
    dist.all_gather_into_tensor(torch.empty(400), torch.empty(100))


def scattered() -> None:
    dist.reduce_scatter_tensor(torch.empty(100), torch.empty(400))


COLLECTIVES: dict[str, tuple[Callable[[], object], int]] = {
    "all_reduce": (lambda: dist.all_reduce(torch.empty(100)), 2 * 300),
    "all_gather": (gathered, 4 * 300),
    "reduce_scatter": (scattered, 4 * 300),
    "all_to_all": (lambda: dist.all_to_all_single(torch.empty(100), torch.empty(100)), 300),
    "broadcast": (lambda: dist.broadcast(torch.empty(100), 0), 400),
    "functional all_reduce": (lambda: functional.all_reduce(torch.empty(100), "sum", dist.group.WORLD), 2 * 300),
    "functional all_gather": (
        lambda: functional.all_gather_tensor(torch.empty(100), 0, dist.group.WORLD), 1200,
    ),
    "functional reduce_scatter": (
        lambda: functional.reduce_scatter_tensor(torch.empty(400), "sum", 0, dist.group.WORLD), 1200,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_send_what_a_ring_does(name: str) -> None:
    program, expected = COLLECTIVES[name]
    with sa.meta(), sa.profile(nn.Module()) as report:
        program()
    assert report.communication() == expected
    assert {work.group for work in report.timeline.work if work.sent} == {4}


def test_collectives_take_no_memory_and_forget_what_was_known() -> None:
    x = torch.empty(400)
    sizes = {"all_gather": 2000, "reduce_scatter": 2000, "all_reduce": 400, "broadcast": 400}
    for name, expected in sizes.items():
        with sa.meta(), sa.profile(nn.Module()) as report:
            COLLECTIVES[name][0]()
        assert report.peak == expected
    with sa.meta():
        dist.barrier()
        dist.send(torch.empty(3), 1)
        dist.scatter(torch.empty(100), [torch.empty(100) for _ in range(4)])
        number = torch.tensor(3)
        assert number.item() == 3
        dist.all_reduce(number)
        with pytest.raises(sa.errors.DataDependentError):
            number.item()
        with pytest.raises(sa.errors.MutationError, match="all_gather|allgather"):
            dist.all_gather_into_tensor(x, torch.empty(100))


def test_sharded_layers_gather_twice_and_scatter_gradients_once() -> None:
    mesh = init_device_mesh("cpu", (4,))
    with sa.meta():
        model = nn.Sequential(*[nn.Linear(64, 64, bias=False) for _ in range(3)])
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        with sa.profile(model) as report:
            model(torch.empty(8, 64)).sum().backward()
    sent = 3 * 64 * 64 * 4 * 3 // 4  # by each process, for all layers once
    assert report.communication("forward") == sent
    assert report.communication("backward") == 2 * sent
    assert report.parameters == 3 * 64 * 64
    assert {(each.logical, each.held) for each in report.wrappers} == {(4 * 64 * 64, 64 * 64)}
