"""Positions, there and back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot.doors.aotautograd import FunctionMeta, compute_inner_mutated_inp_indices_from_subclass_meta
from subclass_aot.kit.flatten import IndexMap, create_subclass_meta

A = torch.ones(2)
VALUES = [A, TwoTensor(TwoTensor(A, A), TwoTensor(A, A)), 7, TwoTensor(A, A)]


@pytest.fixture
def index_map() -> IndexMap:
    return IndexMap.of(create_subclass_meta(VALUES))


def test_names(index_map: IndexMap) -> None:
    assert [slot.name("x") for slot in index_map.slots] == [
        "x[0]", "x[1].a.a", "x[1].a.b", "x[1].b.a", "x[1].b.b", "x[2]", "x[3].a", "x[3].b",
    ]  # fmt: skip


def test_there_and_back(index_map: IndexMap) -> None:
    for outer in range(len(VALUES)):
        assert all(index_map.outer_of(flat) == outer for flat in index_map.flat_of(outer))
        assert index_map.to_outer(index_map.to_flat([outer])) == [outer]
    for slot in index_map.slots:
        assert index_map.at(slot.outer, *slot.path) is slot is index_map.slots[slot.flat]
    assert index_map.to_flat(range(len(VALUES))) == list(range(len(index_map.slots)))


def test_order_is_that_of_the_question(index_map: IndexMap) -> None:
    assert index_map.to_flat([3, 0]) == [6, 7, 0]


def test_no_slot_at_a_wrapper_itself(index_map: IndexMap) -> None:
    with pytest.raises(KeyError, match=r"args\[1\]\.a has no slot of its own"):
        index_map.at(1, ".a")


def test_written_leaves_of_mutated_values(index_map: IndexMap) -> None:
    assert index_map.written([1, 3], [7, 2, 0]) == [2, 7]  # 0 was written, but is not among the mutated
    assert index_map.written([], [1]) == []


def test_mutated_wrappers_count_with_every_slot() -> None:
    metas = create_subclass_meta(VALUES)
    meta = FunctionMeta(metas, mutated_inp_runtime_indices=[3, 0])
    assert compute_inner_mutated_inp_indices_from_subclass_meta(meta) == [0, 6, 7]


def test_without_metas_the_dense_graph_is_asked() -> None:
    inner = SimpleNamespace(mutated_inp_runtime_indices=[4, 5])
    assert compute_inner_mutated_inp_indices_from_subclass_meta(FunctionMeta(()), inner) == [4, 5]
    assert compute_inner_mutated_inp_indices_from_subclass_meta(FunctionMeta(())) == []
