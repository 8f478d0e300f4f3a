"""Wrappers that torch ships: distributed tensors, jagged tensors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten import FlattenPlan, OpaqueMeta, SubclassCreationMeta
from subclass_aot.kit.flatten.metas import NESTED_INT
from tests.torches import TORCH

MESH_IS_AN_ATTRIBUTE = TORCH >= (2, 12)
"""Torch 2.11 has the mesh of a `DTensor` in the context."""


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_distributed_tensor_names_its_mesh(mesh: DeviceMesh, requires_grad: bool) -> None:
    # The process group sends nothing, so the data must not come from another rank.
    value = distribute_tensor(torch.rand(4, 3, requires_grad=requires_grad), mesh, [Shard(0)], src_data_rank=None)
    plan = FlattenPlan.of([value])
    (meta,) = plan.metas
    assert isinstance(meta, SubclassCreationMeta)
    leaves = plan.unwrap([value])
    if MESH_IS_AN_ATTRIBUTE:
        assert meta.attrs["device_mesh"] == OpaqueMeta(1)
        assert [slot.kind for slot in plan.index_map.slots] == ["leaf", "opaque"]
        assert leaves == [value._local_tensor, mesh]
    else:
        assert list(meta.attrs) == ["_local_tensor"] and meta.meta[0].mesh == mesh
        assert leaves == [value._local_tensor]
    (again,) = plan.wrap(leaves)
    assert type(again) is DTensor
    assert (again.placements, again.device_mesh, again.shape) == (value.placements, mesh, value.shape)
    assert torch.equal(again.to_local(), value.to_local())


@pytest.mark.skipif(not MESH_IS_AN_ATTRIBUTE, reason="the mesh is in the context, so it has no place among the leaves")
def test_a_tensor_in_the_place_of_the_mesh_is_refused(mesh: DeviceMesh) -> None:
    plan = FlattenPlan.of([distribute_tensor(torch.rand(4, 3), mesh, [Shard(0)])])
    with pytest.raises(PlanError, match=r"^args\[0\]\.device_mesh: planned as an opaque value, got Tensor\."):
        plan.wrap([torch.rand(4, 3), torch.rand(4, 3)])


def test_a_jagged_tensor_has_nested_ints() -> None:
    parts = [torch.rand(2, 3), torch.rand(4, 3)]
    value = torch.nested.nested_tensor(parts, layout=torch.jagged)
    plan = FlattenPlan.of([value])
    (meta,) = plan.metas
    assert isinstance(meta, SubclassCreationMeta)
    assert meta.outer_size == (2, NESTED_INT, 3) and meta.outer_stride == (NESTED_INT, 3, 1)
    assert all(slot.kind == "leaf" for slot in plan.index_map.slots)
    (again,) = plan.wrap(plan.unwrap([value]))
    assert type(again) is type(value)
    assert all(torch.equal(x, y) for x, y in zip(again.unbind(), parts, strict=True))


def test_a_jagged_tensor_made_from_tensors_that_require_grad() -> None:
    value = torch.nested.as_nested_tensor([torch.rand(2, 3, requires_grad=True)], layout=torch.jagged)
    assert len(FlattenPlan.of([value]).unwrap([value])) >= 2
