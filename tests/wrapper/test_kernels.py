"""Which classes and operators the kernels are told of."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Int4Weight, Int8Weight
from subclass_aot.wrapper import Outer, WrapperTensor, kernels
from subclass_aot.wrapper.rules import forget_handlers
from tests.native.both_ways import served

aten: Any = torch.ops.aten

pytestmark = pytest.mark.skipif(
    not kernels.INSTALLED, reason="the accelerator is optional: without it there is only Python"
)


def dense() -> torch.Tensor:
    return torch.arange(4.0)


class Written(WrapperTensor, fallback="each"):
    """Takes itself apart."""

    left: torch.Tensor
    right: torch.Tensor

    def __tensor_flatten__(self) -> Any:
        return ["right", "left"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any = None, stride: Any = None) -> Any:
        return cls(inner["left"], inner["right"])


class Counted(WrapperTensor, fallback="each"):
    """Has a say in how its attributes are read."""

    left: torch.Tensor
    right: torch.Tensor

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Renamed(WrapperTensor, fallback="each"):
    left: torch.Tensor
    right: torch.Tensor


class Computed(Renamed):
    """Has a property in the place of a field."""


class Optional(WrapperTensor, fallback="each"):
    left: torch.Tensor
    right: torch.Tensor | None = None


class Several(WrapperTensor, fallback="each"):
    parts: list[torch.Tensor]


class Ruled(WrapperTensor, fallback="each"):
    left: torch.Tensor
    right: torch.Tensor

    def outer(self) -> Outer:
        return Outer.like(self.left, dtype=torch.float64)


Computed.left = property(lambda self: self.__dict__["left"], lambda self, value: None)  # type: ignore[assignment]

IN_PYTHON: dict[str, Any] = {
    "a flatten of its own": lambda: Written(dense(), dense()),
    "attributes of its own": lambda: Counted(dense(), dense()),
    "optional fields": lambda: Optional(dense()),
    "several in a field": lambda: Several([dense(), dense()]),
    "an outer rule": lambda: Ruled(dense(), dense()),
}


@pytest.mark.parametrize("which", IN_PYTHON)
def test_classes_that_python_serves(which: str) -> None:
    make = IN_PYTHON[which]
    assert not served(lambda: (make() + make(), make().neg(), make().view(2, 2)))["aten::neg"]


def test_a_property_in_the_place_of_a_field() -> None:
    x = Renamed(dense(), dense())
    x.__class__ = Computed
    assert not served(lambda: x.neg())


def test_an_outer_rule_stays_as_it_is_where_the_tensor_does() -> None:
    assert set(served(lambda: (x := Ruled(dense(), dense()), x.detach(), x.neg()))) == {"aten::detach"}
    weight = Int4Weight.from_float(torch.randn(4, 8), group=4)
    assert set(served(lambda: (weight.detach(), weight[:2].detach(), weight * 2))) == {"aten::detach"}
    assert not served(lambda: Int8Weight.from_float(torch.randn(4, 8)).detach()), "a field of it may be absent"


def test_it_looks_as_it_does_whatever_its_rule_says_now() -> None:
    """Made with other strides than its rule gives, an alias has these, in C++ as in Python."""
    inner = {"left": torch.ones(2, 3), "right": torch.ones(2, 3)}
    x = Ruled.__tensor_unflatten__(inner, None, (2, 3), (1, 2))
    assert served(lambda: (x.detach(), aten.alias(x)))
    assert x.detach().stride() == (1, 2)


def test_what_is_forgotten_is_found_again() -> None:
    x = Renamed(dense(), dense())
    assert served(lambda: x.neg())
    kernels.forget(Renamed)
    before = kernels.hits()
    x.neg()
    assert kernels.hits() == before
    forget_handlers(Renamed)
    assert served(lambda: x.neg())
