"""Clauses 20 to 29, on classes with one mistake each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, WrapperTensor
from tests.testing.contract.classes import (
    OURS,
    PRODUCTS,
    Held,
    Scaled,
    aten,
    broken,
    held,
    quant_aware,
    scaled,
)

OPERATORS = (20, 24, 25, 26, 27, 29)


class Raising(Held):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if out is NotImplemented:
            raise TypeError("unknown class")
        return out


class DropsClass(Held):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.detach.default:
            return args[0].held.detach()
        return super().__torch_dispatch__(func, types, args, kwargs)


class SharesScale(Scaled):
    pass


@SharesScale.implements(aten.clone.default)
def _(x: Any, memory_format: Any = None) -> Any:
    return SharesScale(x.codes.clone(memory_format=memory_format), x.scale)


class Divided(WrapperTensor, fallback="each"):
    """Zeros in each field are no zeros: they divide by zero."""

    above: torch.Tensor
    below: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.above / self.below


class KeepsScale(Scaled):
    """New values are held by the scale that is there, which is anything in a tensor that is empty."""

    def from_plain(self, plain: torch.Tensor) -> Any:
        return KeepsScale(plain / self.scale, self.scale.clone())


class FirstFieldOnly(TwoTensor):
    pass


@FirstFieldOnly.implements(aten.equal.default)
def _(one: Any, other: Any) -> bool:
    return bool(aten.equal.default(one.a, other.a))


class TakesOneField(TwoTensor):
    """Its sum is that of one field, twice."""


@TakesOneField.implements(aten.sum.dim_IntList)
def _(x: Any, *args: Any, **kwargs: Any) -> Any:
    total = aten.sum.dim_IntList(x.a, *args, **kwargs)
    return TakesOneField(total, total.clone())


class KeepsStrides(Held):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.clone.default:
            return cls(args[0].held.clone(memory_format=torch.preserve_format))
        return super().__torch_dispatch__(func, types, args, kwargs)


class UnknownSeed(Held):
    generator = torch.Generator().manual_seed(5)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.rand_like.default:
            return cls(torch.rand(args[0].shape, generator=UnknownSeed.generator))
        return super().__torch_dispatch__(func, types, args, kwargs)


def pair(cls: type) -> Any:
    return lambda: cls(torch.randn(4, 6), torch.randn(4, 6) + 3)


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
        (held(Raising), "a class it does not know", "add raises TypeError, and the other class is never asked"),
        (held(DropsClass), "the class comes back", "detach gives a Tensor"),
        (scaled(SharesScale), "clone", "['scale'] of the clone is memory of the tensor"),
        (scaled(KeepsScale), "empty_like", "empty_like(x).copy_(dense) has wrong values"),
        (pair(Divided), "zeros_like", "zeros_like(x)"),
        (pair(FirstFieldOnly), "equal", "torch.equal is True though b differs"),
        (pair(TakesOneField), "x.sum(0)", "x.sum(0) has wrong values"),
        (held(KeepsStrides), "memory format", "x.transpose(0, -1).contiguous() has strides"),
        (held(UnknownSeed), "random", "rand_like, once more under the seed, has wrong values"),
    ],
)
def test_one_mistake(make: Any, name: str, says: str) -> None:
    assert says in broken(make, OPERATORS)[name]
