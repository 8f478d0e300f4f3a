"""Sizes that only the call knows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot.doors.aotautograd import unwrap_tensor_subclasses, wrap_tensor_subclasses
from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten import FlattenPlan, SubclassCreationMeta, create_subclass_meta
from subclass_aot.kit.flatten.metas import SYMBOLIC
from tests.classes import Flat
from tests.kit.flatten import aot


class Fast(TwoTensor):
    """A `TwoTensor` that is built without its constructor."""

    @classmethod
    def __wrapper_attributes__(cls, names: tuple[str, ...], context: Any) -> dict[str, object]:
        return {}


def symbolic(*sizes: int) -> torch.Tensor:
    return FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.rand(sizes), static_shapes=False)


@pytest.mark.parametrize("cls", [TwoTensor, Fast])
def test_slots_follow_the_leaves(cls: type[TwoTensor]) -> None:
    a = symbolic(3, 4)
    plan = FlattenPlan.of([cls(a, a), 5])
    (meta, last) = plan.metas
    assert isinstance(meta, SubclassCreationMeta)
    assert (meta.outer_size, meta.outer_stride) == ((SYMBOLIC, SYMBOLIC), (SYMBOLIC, 1))
    assert (meta.symbolic_sizes, meta.symbolic_strides, meta.arg_count) == ((0, 1), (0,), 5)
    assert [str(slot) for slot in plan.index_map.slots] == [
        "args[0].a", "args[0].b", "args[0].size(0)", "args[0].size(1)", "args[0].stride(0)", "args[1]",
    ]  # fmt: skip
    assert plan.index_map.at(0, kind="stride", dim=0).flat == 4
    assert plan.index_map.of_kind("size") == [2, 3]
    real = cls(torch.rand(5, 7), torch.rand(5, 7))
    leaves = plan.unwrap([real, 5])
    assert leaves[2:] == [5, 7, 7, 5]
    (again, _) = plan.wrap(leaves)
    assert (type(again), again.shape, again.stride(), again.b is real.b) == (cls, real.shape, real.stride(), True)


def test_nested_wrappers_have_slots_of_their_own() -> None:
    a = symbolic(3, 4)
    inner = TwoTensor(a, a)
    values = [TwoTensor(inner, inner)]
    plan = FlattenPlan.of(values)
    leaves = plan.unwrap(values)
    assert [str(x) for x in FlattenPlan.read(values)[1]] == [str(x) for x in leaves]
    theirs = aot.unwrap(values)
    assert [str(x) for x in leaves] == [str(x) for x in theirs]
    assert len(leaves) == plan.metas[0].arg_count == 4 + 3 * 3
    assert [str(x) for x in unwrap_tensor_subclasses(values, append_symints=True)] == [str(x) for x in theirs]
    assert plan.metas[0].arg_count == aot.create_subclass_meta(values)[0].arg_count
    (again,) = plan.wrap(leaves)
    assert again.shape == values[0].shape


def test_without_metas_the_slots_are_found_again() -> None:
    a = symbolic(3, 4)
    value = TwoTensor(a, a)
    assert len(unwrap_tensor_subclasses([value], append_symints=True)) == 5
    assert len(unwrap_tensor_subclasses([value], append_symints=False)) == 2


@pytest.mark.parametrize("cls", [TwoTensor, Fast])
def test_tangents_are_as_large_as_what_they_hold(cls: type[TwoTensor]) -> None:
    a = symbolic(3, 4)
    (meta,) = create_subclass_meta([cls(cls(a, a), cls(a, a))], count_symints=False)
    assert meta.arg_count == 4
    tangents = [torch.rand(6, 2) for _ in range(4)]
    (again,) = wrap_tensor_subclasses(tangents, subclass_metas=[meta])
    assert (type(again), again.shape, again.stride(), again.b.shape) == (cls, (6, 2), (2, 1), (6, 2))
    assert unwrap_tensor_subclasses([again], append_symints=True, subclass_metas=[meta]) == tangents


def test_primals_without_their_slots() -> None:
    a = symbolic(3, 4)
    (meta,) = create_subclass_meta([TwoTensor(a, a)])
    real = TwoTensor(torch.rand(5, 7), torch.rand(5, 7))
    assert unwrap_tensor_subclasses([real], append_symints=False, subclass_metas=[meta]) == [real.a, real.b]
    with pytest.raises(PlanError, match="described with count_symints=True, wrapped with included_subclass_symints=Fa"):
        wrap_tensor_subclasses([a, a], subclass_metas=[meta])


def test_no_inner_tensor_to_take_the_size_from() -> None:
    rows = symbolic(3, 4)
    value = Flat(torch.rand(12), rows.shape)
    assert create_subclass_meta([value])[0].arg_count == 1 + 3
    with pytest.raises(PlanError, match=r"(?s)^args\[0\]: a symbolic size has no slot .* outer rank 2 to take"):
        create_subclass_meta([value], count_symints=False)


def test_a_tensor_in_the_place_of_a_size_is_refused() -> None:
    a = symbolic(3, 4)
    plan = FlattenPlan.of([TwoTensor(a, a)])
    b = torch.rand(3, 4)
    with pytest.raises(PlanError, match=r"^args\[0\]\.size\(1\): planned as a size, got Tensor\."):
        plan.wrap([b, b, 3, b, 4])


def test_a_symbolic_storage_offset_is_that_of_the_first_inner_tensor() -> None:
    a = symbolic(3, 4)[1:]
    plan = FlattenPlan.of([Fast(a, a)])
    (meta,) = plan.metas
    assert isinstance(meta, SubclassCreationMeta) and meta.storage_offset is SYMBOLIC
    inner = torch.rand(6, 5)[1:]
    (again,) = plan.wrap(plan.unwrap([Fast(inner, inner)]))
    assert again.storage_offset() == 5
