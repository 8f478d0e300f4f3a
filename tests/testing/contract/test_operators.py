"""Clauses 20 to 29, on classes with one mistake each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.testing.contract.check import CLAUSES
from tests.testing.contract.classes import (
    OURS,
    PRODUCTS,
    Held,
    Scaled,
    broken,
    held,
    quant_aware,
    scaled,
)
from tests.testing.contract.wrong_by_hand import DropsClass, KeepsStrides, Raising, UnknownSeed
from tests.testing.contract.wrong_declared import (
    Divided,
    FirstFieldOnly,
    KeepsScale,
    SharesScale,
    TakesOneField,
    ZerosShareScale,
)

OPERATORS = (20, 24, 25, 26, 27, 29)


def pair(cls: type) -> Any:
    return lambda: cls(torch.randn(4, 6), torch.randn(4, 6) + 3)


@pytest.mark.long
@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    make, expected = OURS[name]
    assert {name for number, name in expected if number in OPERATORS} == set(broken(make, OPERATORS))


def test_right_classes() -> None:
    assert broken(held(Held), OPERATORS) == {}
    assert broken(scaled(Scaled), OPERATORS) == {}


def test_products_of_a_rounded_weight() -> None:
    found = broken(quant_aware, OPERATORS)
    assert set(found) == {name for number, name in PRODUCTS if number in OPERATORS}
    assert all("has wrong values, off by 0.00" in why for why in found.values())


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (held(Raising), "a class it does not know", "add raises TypeError, and the other class is never called"),
        (held(DropsClass), "the class comes back", "detach gives a Tensor"),
        (scaled(SharesScale), "clone", "['scale'] of the clone is memory of the tensor"),
        (scaled(ZerosShareScale), "new tensors", "x after zeros_like(x).add_(x)"),
        (scaled(KeepsScale), "empty_like", "empty_like(x).copy_(dense) has wrong values"),
        (pair(Divided), "zeros_like", "zeros_like(x)"),
        (pair(FirstFieldOnly), "equal", "torch.equal is True though b differs"),
        (pair(TakesOneField), "x.sum(0)", "x.sum(0) has wrong values"),
        (held(KeepsStrides), "memory format", "x.transpose(0, -1).contiguous() has strides"),
        (held(UnknownSeed), "random", "rand_like, once more under the seed, has wrong values"),
    ],
)
def test_one_mistake(make: Any, name: str, says: str) -> None:
    (number,) = (clause.number for clause in CLAUSES if clause.name == name)
    assert says in broken(make, [number])[name]
