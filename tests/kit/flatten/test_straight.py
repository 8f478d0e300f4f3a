"""The good path gives the leaves in order; whatever does not fit goes to the careful function, whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.base import hooks
from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten import create_subclass_meta
from subclass_aot.kit.flatten.straight import CHUNK, FEW, LEAST, MANY, straight_unwrap
from subclass_aot.testing import dense_leaves
from tests.fuzz.trees import Parts, Tagged

COUNTS = (LEAST, FEW // 3, FEW, CHUNK - 1, MANY // 3 + 1, MANY + CHUNK + 1)


def make(count: int) -> list[Any]:
    """Dense tensors, wrappers and nested wrappers, in turn."""
    kinds = (
        lambda: torch.ones(1),
        lambda: TwoTensor(torch.ones(1), torch.ones(1)),
        lambda: Tagged(TwoTensor(torch.ones(1), torch.ones(1)), None, 2),
    )
    return [kinds[i % 3]() for i in range(count)]


class Careful:
    """Stands for the careful function."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self) -> Any:
        def unwrap(values: Sequence[Any]) -> list[Any]:
            self.given.append(values)
            return ["careful"]

        return unwrap


pytestmark = pytest.mark.skipif(not hooks.one_call_pays, reason="without the extension the careful one is fastest")


@pytest.mark.parametrize("count", COUNTS)
def test_leaves_in_order(count: int) -> None:
    values, careful = make(count), Careful()
    unwrap = straight_unwrap(create_subclass_meta(values), "args", careful)
    for given in (values, make(count)):
        expected = [leaf for value in given for leaf in dense_leaves(value)]
        found = unwrap(given)
        assert len(found) == len(expected) and all(x is y for x, y in zip(found, expected, strict=True))
    assert not careful.given


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("wrong", [0, -1])
def test_another_class_anywhere(count: int, wrong: int) -> None:
    values, careful = make(count), Careful()
    unwrap = straight_unwrap(create_subclass_meta(values), "args", careful)
    values[wrong] = Parts([torch.ones(1)])
    assert unwrap(values) == ["careful"]
    assert all(x is y for x, y in zip(careful.given[0], values, strict=True))


def test_another_class_inside() -> None:
    values, careful = make(3), Careful()
    unwrap = straight_unwrap(create_subclass_meta(values), "args", careful)
    values[2] = Tagged(torch.ones(1), None, 2)
    assert unwrap(values) == ["careful"]


def test_another_number_of_values() -> None:
    unwrap = straight_unwrap(create_subclass_meta(make(LEAST)), "args", Careful())
    with pytest.raises(PlanError, match="args: planned for 3 values, got 4"):
        unwrap(make(LEAST + 1))


def test_of_few_values_the_careful_one_is_as_fast() -> None:
    for count in range(LEAST):
        assert straight_unwrap(create_subclass_meta(make(count)), "args", Careful())([]) == ["careful"]
