"""The structure of jagged tensors: which leaves it is, and how a gradient gets that of its result."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import TwoTensor
from subclass_aot.engine.structures import structure_in, structure_of, structure_slots
from subclass_aot.kit.flatten import FlattenPlan


def jagged(*lengths: int, shape: tuple[int, ...] = (4,)) -> Any:
    return torch.nested.nested_tensor([torch.rand(n, *shape) for n in lengths], layout=torch.jagged)


def test_the_structure_is_all_but_the_elements() -> None:
    values = [torch.ones(2), jagged(2, 3), TwoTensor(torch.ones(2), torch.ones(2)), jagged(1, 1)]
    plan = FlattenPlan.of(values)
    leaves = plan.unwrap(values)
    slots = structure_slots(plan.metas, plan.index_map)
    structure = structure_in(plan, values)
    assert list(structure) == list(slots) and all(structure[slot] is leaves[slot] for slot in slots)
    found = [id(leaves[slot]) for slot in slots]
    assert {id(values[1].offsets()), id(values[3].offsets())} <= set(found)
    assert not {id(leaf) for leaf in (values[0], values[1]._values, values[3]._values, values[2].a)} & set(found)


def test_a_gradient_has_the_very_structure_of_its_result() -> None:
    """The oracle is torch: tensors of one structure have one shape, and can be added."""
    like, gradient = jagged(2, 3), jagged(2, 3)
    assert gradient.shape != like.shape
    structure = structure_of(type(like))
    assert structure is not None
    made: Any = structure.gradient_like(like, gradient)
    assert made.shape == like.shape and made.offsets() is like.offsets()
    torch.testing.assert_close((made + like).values(), gradient.values() + like.values())
