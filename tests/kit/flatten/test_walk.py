"""A walk over the tree of a wrapper."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, WrapperTensor
from subclass_aot.kit.flatten import ContainerMeta, FlattenPlan, PlainTensorMeta, create_subclass_meta, walk


class Several(WrapperTensor, fallback="each"):
    first: torch.Tensor
    parts: list[torch.Tensor]
    named: dict[str, torch.Tensor]
    last: torch.Tensor | None = None


def one() -> torch.Tensor:
    return torch.ones(2)


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        (3, [""]),
        (one(), [""]),
        (TwoTensor(TwoTensor(one(), one()), one()), ["", ".a", ".a.a", ".a.b", ".b"]),
        (Several(one(), [one(), one()], {"k": one()}), ["", ".first", ".parts_0", ".parts_1", ".named_k"]),
        (Several(one(), [], {}, TwoTensor(one(), one())), ["", ".first", ".last", ".last.a", ".last.b"]),
    ],
)
def test_paths_lead_to_what_is_there(value: Any, paths: list[str]) -> None:
    """The oracle is Python: a path is the expression of the part, and outer parts come first."""
    (meta,) = create_subclass_meta([value])
    found = list(walk(value, meta, "x"))
    assert [path for path, _, _ in found] == ["x" + path for path in paths]
    assert all(part is eval(path, {"x": value}) for path, part, _ in found)
    assert found[0][2] is meta


def test_leaves_are_those_of_a_plan_in_its_order() -> None:
    value = TwoTensor(Several(one(), [one()], {"k": one()}), TwoTensor(one(), one()))
    (meta,) = create_subclass_meta([value])
    leaves = [part for _, part, _ in walk(value, meta) if type(part) is torch.Tensor]
    expected = FlattenPlan.of([value]).unwrap([value])
    assert len(leaves) == len(expected) and all(a is b for a, b in zip(leaves, expected, strict=True))


@pytest.mark.parametrize("value", [[one(), one()], (one(), one()), {"k": one(), 1: one()}])
def test_elements_of_containers(value: Any) -> None:
    keys = list(value) if isinstance(value, dict) else [0, 1]
    meta = ContainerMeta(2, type(value), {key: PlainTensorMeta(i) for i, key in enumerate(keys)})
    found = list(walk(value, meta, "x"))
    assert [path for path, _, _ in found] == ["x", *(f"x[{key!r}]" for key in keys)]
    assert all(part is eval(path, {"x": value}) for path, part, _ in found)
