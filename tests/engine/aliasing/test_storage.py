"""Which leaves share memory, and which of them need a base when one is written."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor
from subclass_aot.engine.aliasing import (
    bases_of,
    flat_base,
    has_internal_overlap,
    has_storage,
    overlapping_slots,
    storage_groups,
)
from subclass_aot.errors import MutationError

BASE = torch.arange(12.0)
LEFT, MIDDLE, RIGHT, APART = BASE[:4], BASE[3:6], BASE[6:9], BASE[9:]
OTHER = torch.ones(3)


def path(slot: int) -> str:
    return f"args[{slot}]"


def slots(leaves: list[Any], *written: int) -> list[tuple[int, ...]]:
    return [base.slots for base in bases_of(leaves, set(written), path)]


def test_what_has_storage() -> None:
    assert has_storage(OTHER)
    for leaf in (3, torch.ones(0), MetaTensor(OTHER), torch.ones(2, device="meta"), torch.eye(2).to_sparse()):
        assert not has_storage(leaf)


def test_groups_and_overlaps() -> None:
    leaves = [LEFT, OTHER, MIDDLE, 5, RIGHT, BASE[6:]]
    assert storage_groups(leaves) == [(0, 2, 4, 5)]
    assert overlapping_slots(leaves) == [(0, 2), (4, 5)]


def test_neighbours_do_not_overlap() -> None:
    assert overlapping_slots([BASE[:3], MIDDLE, BASE[3:3]]) == []
    assert overlapping_slots([BASE.view(3, 4)[:, :2], BASE.view(3, 4)[:, 2:]]) == [(0, 1)]  # ranges, not elements


def test_only_what_is_written_and_overlaps_needs_a_base() -> None:
    leaves = [LEFT, MIDDLE, RIGHT, OTHER, APART]
    assert slots(leaves) == slots(leaves, 2, 3) == []
    assert slots(leaves, 0) == slots(leaves, 1) == [(0, 1)]
    assert slots(leaves, 0, 2) == [(0, 1, 2)]  # what is written of the storage is in the one base
    assert slots([LEFT, RIGHT, OTHER, OTHER], 0, 2) == [(2, 3)]


def test_a_base_is_the_whole_storage() -> None:
    (base,) = bases_of([BASE.view(3, 4)[1], BASE[4:6]], {0}, path)
    assert (base.spec.size, base.spec.stride, base.spec.offset, base.spec.dtype) == ((12,), (1,), 0, torch.float32)
    flat = flat_base(APART)
    assert torch.equal(flat, BASE) and flat.data_ptr() == BASE.data_ptr()


def test_elements_in_one_place_need_a_base() -> None:
    row = torch.ones(3).expand(2, 3)
    assert has_internal_overlap(row) and not has_internal_overlap(OTHER)
    assert slots([row], 0) == [(0,)] and slots([row, OTHER], 1) == []


def test_overlapping_dtypes_are_refused_with_their_paths() -> None:
    leaves = [BASE, BASE.view(torch.int32)]
    with pytest.raises(MutationError, match=r"args\[0\] and args\[1\] share storage, have different dtypes"):
        slots(leaves, 1)
    assert slots(leaves) == []
