"""Reading and rebuilding by one meta, without generated code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot.errors import LeafCountError, PlanError
from subclass_aot.kit.flatten import FlattenPlan, create_subclass_meta
from tests.kit.flatten.test_creation import Bag


def dense() -> torch.Tensor:
    return torch.rand(2)


def values() -> list[Any]:
    bag = Bag({"parts": [dense(), TwoTensor(dense(), dense())], "none": None, "named": {"k": dense(), 3: (dense(),)}})
    return [dense(), TwoTensor(TwoTensor(dense(), dense()), TwoTensor(dense(), dense())), bag]


def test_a_wrapper_is_rebuilt_as_by_generated_code() -> None:
    given = values()
    plan = FlattenPlan.of(given)
    leaves = plan.unwrap(given)
    for i, (meta, generated) in enumerate(zip(plan.metas, plan.wrap(leaves), strict=True)):
        if not i:
            continue
        made = FlattenPlan.rebuild_by(meta, leaves, is_runtime=True)
        own, others = FlattenPlan.leaves_of(made), FlattenPlan.leaves_of(generated)
        assert type(made) is type(generated) and all(a is b for a, b in zip(own, others, strict=True))
        assert create_subclass_meta([made]) == create_subclass_meta([generated])


def test_leaves_are_read_as_by_generated_code() -> None:
    given = values()[:2]
    plan = FlattenPlan.of(given)
    found = [
        leaf
        for value, meta in zip(given, plan.metas, strict=True)
        for leaf in FlattenPlan.leaves_by(value, meta, append_symints=True)
    ]
    assert all(a is b for a, b in zip(found, plan.unwrap(given), strict=True))


def test_what_does_not_fit_is_named() -> None:
    _, nested, _ = values()
    (meta,) = create_subclass_meta([nested])
    with pytest.raises(PlanError, match=r"^x: planned as TwoTensor, got Tensor"):
        FlattenPlan.leaves_by(dense(), meta, append_symints=True, name="x")
    with pytest.raises(PlanError, match=r"^x.b: planned as TwoTensor, got Tensor"):
        wrong = TwoTensor(TwoTensor(dense(), dense()), dense())
        FlattenPlan.leaves_by(wrong, meta, append_symints=True, name="x")
    with pytest.raises(LeafCountError, match=r"^x.a.b: its slot is number 1 of the flat list, which has 1"):
        FlattenPlan.rebuild_by(meta, [dense()], is_runtime=True, name="x")
    with pytest.raises(PlanError, match=r"^x.b.a: planned as an inner tensor, got an object of type float"):
        FlattenPlan.rebuild_by(meta, [dense(), dense(), 1.5, dense()], is_runtime=True, name="x")
