"""Clauses 39 to 41, on classes with one mistake each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight
from tests.testing.contract.classes import OURS, Held, aten, broken, held

ONLY = (39, 40, 41)


class CoarseState(Int8Weight):
    """`zeros_like` keeps the class, so optimizers keep their state in eight bits."""


@CoarseState.implements(aten.zeros_like.default)
def _(x: Any, **kwargs: Any) -> Any:
    return CoarseState(torch.zeros_like(x.codes), torch.ones_like(x.scale))


def marked() -> Held:
    """With an attribute that is not in the context."""
    tensor: Any = Held(torch.randn(4, 6))
    tensor.mark = "a"
    return tensor  # type: ignore[no-any-return]


class SignOfNorm(Held):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.linalg_vector_norm.default:
            return args[0].held.sum()
        return super().__torch_dispatch__(func, types, args, kwargs)


@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    assert broken(OURS[name][0], ONLY) == {}


def test_right_class() -> None:
    assert broken(held(Held), ONLY) == {}


def test_optimizer_state_in_eight_bits() -> None:
    found = broken(lambda: CoarseState.from_float(torch.randn(4, 6)), ONLY)
    assert "AdamW" in found and "the parameter has wrong values" in found["AdamW"]


def test_a_parameter_without_its_attribute() -> None:
    assert broken(marked, ONLY) == {"Parameter": "['mark'] are not there any more"}


def test_a_norm_that_is_a_sum() -> None:
    assert set(broken(held(SignOfNorm), ONLY)) == {"clip_grad_norm_"}
