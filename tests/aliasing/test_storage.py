"""Which leaves share storage, and which need a base when one is written."""

from __future__ import annotations

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.aliasing import (
    autograd_base,
    bases_of,
    flat_base,
    has_internal_overlap,
    has_storage,
    overlapping_slots,
    storage_groups,
    versions,
)
from subclass_aot.errors import MutationError
from subclass_aot.flatten import create_subclass_meta


def test_a_group_shares_storage_and_a_cluster_overlaps() -> None:
    x = torch.rand(6)
    leaves = [x[:3], torch.rand(2), x[2:4], x[4:], None]
    assert storage_groups(leaves) == [(0, 2, 3)]
    assert overlapping_slots(leaves) == [(0, 2)]
    assert not has_storage(None) and not has_storage(torch.empty(0, device="meta"))


def test_a_base_is_needed_where_what_is_written_overlaps() -> None:
    x = torch.rand(6)
    leaves = [x[:3], x[2:4], x[4:]]
    (base,) = bases_of(leaves, {0}, str)
    assert base.slots == (0, 1) and base.spec.size == (6,)
    (base,) = bases_of(leaves, {0, 2}, str)  # one new value replaces the whole storage
    assert base.slots == (0, 1, 2)
    assert not bases_of(leaves, {2}, str) and flat_base(leaves[2]).equal(x)


def test_a_leaf_that_overlaps_itself_needs_one() -> None:
    x = torch.rand(1).expand(3)
    assert has_internal_overlap(x) and not has_internal_overlap(torch.rand(3))
    (base,) = bases_of([x], {0}, str)
    assert base.slots == (0,)


def test_dtypes_must_be_one() -> None:
    x = torch.rand(4)
    with pytest.raises(MutationError, match="0 and 1 share storage, have different dtypes"):
        bases_of([x, x.view(torch.int32)], {0}, str)


def test_a_view_of_a_view_has_the_first_tensor_as_its_base() -> None:
    x = torch.rand(4)
    assert autograd_base(x) is x and autograd_base(x[1:][1:]) is x


def test_each_tensor_has_a_version_of_its_own() -> None:
    x = TwoTensor(torch.rand(2), torch.rand(2))
    x.a.add_(1)
    (meta,) = create_subclass_meta([x])
    assert versions(x, meta) == {"": 0, ".a": 1, ".b": 0}
