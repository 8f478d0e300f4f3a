"""Gradients that arrive: which are as expected, and what becomes of those that are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.engine.runtime.tangent_coercion import any_without_data, converted, fits, restrided, same_size, zeros
from subclass_aot.kit.flatten import create_subclass_meta
from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.meta import MetaTensor, Spec
from subclass_aot.testing import dense_leaves


class Scaled(WrapperTensor, fallback="each"):
    """Takes any dense gradient, and one of its own class with another factor."""

    codes: torch.Tensor
    factor: int = 1

    def __coerce_same_metadata_as_tangent__(self, context: Any, expected_type: type | None = None) -> Any:
        if expected_type is torch.Tensor:
            return self.codes * self.factor
        return None if expected_type else Scaled(self.codes * self.factor // context[0], *context)

    @classmethod
    def from_tangent(cls, tangent: torch.Tensor, context: Any) -> Any:
        return cls(tangent / context[0], *context) if type(tangent) is torch.Tensor else None


def kind_of(value: torch.Tensor) -> tuple[Any, list[Spec]]:
    """What a gradient like `value` is expected to be."""
    (meta,) = create_subclass_meta([value])
    return meta, [Spec.of(leaf) for leaf in dense_leaves(value)]


def two(a: Any = None, b: Any = None) -> TwoTensor:
    return TwoTensor(torch.ones(2, 3) if a is None else a, torch.ones(2, 3) if b is None else b)


EXPECTED: dict[str, Any] = {
    "dense": torch.zeros(2, 3),
    "two": two(),
    "nested": two(two()),
    "scaled": Scaled(torch.zeros(2, 3), 2),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_gradient_like_the_expected_one_goes_through(name: str) -> None:
    kind = kind_of(EXPECTED[name])
    for expected, tangent in EXPECTED.items():
        assert fits(tangent, *kind) is (expected == name)
    assert converted(EXPECTED[name], *kind) is EXPECTED[name]


@pytest.mark.parametrize(
    "tangent", [torch.zeros(3, 2), torch.zeros(2, 3, 1), torch.zeros(2, 3, dtype=torch.float64), None, 1.0]
)
def test_sizes_and_dtypes_must_be_those_expected(tangent: Any) -> None:
    assert not fits(tangent, *kind_of(torch.zeros(2, 3)))


def test_strides_may_differ() -> None:
    assert fits(torch.zeros(3, 2).t(), *kind_of(torch.zeros(2, 3)))
    tangent = torch.arange(6.0).view(3, 2).t()
    packed = restrided(tangent, (3, 1))
    assert packed.stride() == (3, 1) and torch.equal(packed, tangent) and packed is not tangent


def test_a_gradient_of_a_class_that_converts_itself() -> None:
    tangent = Scaled(torch.full((2, 3), 4.0), 3)
    dense = converted(tangent, *kind_of(torch.zeros(2, 3)))
    assert type(dense) is torch.Tensor and dense.unique().item() == 12
    other = converted(tangent, *kind_of(Scaled(torch.zeros(2, 3), 2)))
    assert other.factor == 2 and other.codes.unique().item() == 6


def test_a_gradient_that_the_expected_class_converts() -> None:
    found = converted(torch.full((2, 3), 4.0), *kind_of(Scaled(torch.zeros(2, 3), 2)))
    assert (type(found), found.factor, found.codes.unique().item()) == (Scaled, 2, 2)


def test_inner_tensors_are_converted_where_only_they_differ() -> None:
    tangent = two(Scaled(torch.full((2, 3), 4.0), 3))
    found = converted(tangent, *kind_of(two()))
    assert type(found) is TwoTensor and found.a.unique().item() == 12 and found.b is tangent.b
    assert type(tangent.a) is Scaled, "the user's gradient is not changed"


@pytest.mark.parametrize("tangent", [torch.zeros(2, 3), two(two()), Scaled(torch.zeros(2, 3))])
def test_what_nobody_converts(tangent: torch.Tensor) -> None:
    assert converted(tangent, *kind_of(two())) is None


def test_a_conversion_of_another_form_than_asked_for_is_none() -> None:
    assert converted(torch.zeros(3, 2), *kind_of(Scaled(torch.zeros(2, 3), 2))) is None


def test_symbolic_sizes_are_what_autograd_has_looked_at() -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    symbol = ShapeEnv().create_unbacked_symint()
    assert same_size((2, 3), (symbol, 3)) and same_size((5, 3), (symbol, 3))
    assert not same_size((2, 4), (symbol, 3)) and not same_size((2,), (symbol, 3))


def test_zeros_have_no_data_where_other_gradients_have_none() -> None:
    spec = Spec.of(torch.zeros(2, 3, dtype=torch.float64))
    real = zeros(spec, (2, 3), (1, 2), any_without_data([None, two()]))
    assert type(real) is torch.Tensor and not real.any() and real.stride() == (1, 2) and real.dtype is torch.float64
    without = zeros(spec, (2, 3), (1, 2), any_without_data([None, two(b=MetaTensor(torch.zeros(2, 3)))]))
    assert type(without) is MetaTensor and without.stride() == (1, 2) and without.dtype is torch.float64
