"""A `DTensor` of wrappers as a wrapper of `DTensor`s: how each leaf is placed. Values: `tests/files/four_ranks.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from subclass_aot import Int8Weight, TwoTensor, WrapperTensor
from subclass_aot.errors import ShardingError
from subclass_aot.ranks import of_distributed, within_distributed

RANKS = 2


@pytest.fixture(autouse=True)
def _two_ranks() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield
    dist.destroy_process_group()


def placed(local: torch.Tensor, placement: Any, size: tuple[int, ...]) -> Any:
    """What this rank, the first of two, has of a tensor."""
    stride = torch.empty(size, device="meta").stride()
    mesh = init_device_mesh("cpu", (RANKS,))
    return DTensor.from_local(local, mesh, [placement], run_check=False, shape=torch.Size(size), stride=stride)


def int8(rows: int, columns: int) -> Any:
    return Int8Weight.from_float(torch.randn(rows, columns))


class Grouped(WrapperTensor, views="blocks"):
    """Codes, and a scale for each two rows."""

    codes: torch.Tensor
    scale: torch.Tensor


def grouped(rows: int) -> Any:
    return Grouped(torch.ones(rows, 4), torch.ones(rows // 2, 1))


@pytest.mark.parametrize(
    ("local", "placement", "size", "expected"),
    [
        (int8(4, 6), Shard(0), (8, 6), {"codes": (Shard(0), (8, 6)), "scale": (Shard(0), (8, 1))}),
        (int8(4, 6), Shard(0), (7, 6), {"codes": (Shard(0), (7, 6)), "scale": (Shard(0), (7, 1))}),
        (int8(1, 6), Shard(0), (2, 6), {"codes": (Shard(0), (2, 6)), "scale": (Shard(0), (2, 1))}),
        (int8(8, 3), Shard(1), (8, 6), {"codes": (Shard(1), (8, 6)), "scale": (Replicate(), (8, 1))}),
        (int8(8, 6), Replicate(), (8, 6), {"codes": (Replicate(), (8, 6)), "scale": (Replicate(), (8, 1))}),
        (grouped(4), Shard(0), (8, 4), {"codes": (Shard(0), (8, 4)), "scale": (Shard(0), (4, 1))}),
        (TwoTensor(torch.ones(4, 3), torch.ones(4, 3)), Shard(1), (4, 6), dict.fromkeys("ab", (Shard(1), (4, 6)))),
    ],
)
def test_a_leaf_is_cut_as_its_wrapper_or_the_same_on_each_rank(
    local: Any, placement: Any, size: tuple[int, ...], expected: dict[str, Any]
) -> None:
    whole = placed(local, placement, size)
    apart = of_distributed(whole)
    assert type(apart) is type(local) and apart.shape == size
    found = {name: getattr(apart, name) for name in apart.__tensor_flatten__()[0]}
    assert {name: (leaf.placements[0], tuple(leaf.shape)) for name, leaf in found.items()} == expected
    for name, leaf in found.items():
        assert leaf.to_local().data_ptr() == getattr(local, name).data_ptr()
    again = within_distributed(apart, whole)
    assert again.placements == whole.placements and again.shape == whole.shape and again.stride() == whole.stride()
    assert type(again.to_local()) is type(local) and again.to_local().shape == local.shape


def test_wrappers_in_wrappers() -> None:
    both = TwoTensor(int8(8, 3), int8(8, 3))
    apart = of_distributed(placed(both, Shard(1), (8, 6)))
    assert type(apart.a) is Int8Weight and apart.a.codes.placements == (Shard(1),)
    assert apart.b.scale.placements == (Replicate(),)
    again = within_distributed(apart, placed(both, Shard(1), (8, 6)))
    assert again.to_local().a.codes.equal(both.a.codes)


@pytest.mark.parametrize(
    ("local", "placement", "size", "why"),
    [
        (int8(4, 6), Partial(), (4, 6), r"w is a DTensor of Int8Weight.*it is placed as P"),
        (int8(8, 1), Shard(1), (8, 2), r"of one column on each rank nobody can tell whether codes\[8, 1\]"),
        (grouped(6), Shard(0), (10, 4), r"cut scale, which stands for 2 each, within one"),
    ],
)
def test_what_cannot_be_told_is_refused(local: Any, placement: Any, size: tuple[int, ...], why: str) -> None:
    with pytest.raises(ShardingError, match=f"(?s){why}") as error:
        of_distributed(placed(local, placement, size), "w")
    assert "Instead: save w.to_local(), each rank its own, or w.full_tensor()" in str(error.value)
