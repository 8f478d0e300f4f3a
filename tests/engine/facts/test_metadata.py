"""The metadata of tensors: what makes a difference to a guard, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight, TwoTensor
from subclass_aot.engine.facts.metadata import metadata_of
from tests.engine.facts.calls import Tagged

x = torch.ones(2, 3)
MADE: dict[str, Callable[[], Any]] = {
    "dense": lambda: x.clone(),
    "other size": lambda: torch.ones(3, 2),
    "other stride": lambda: torch.ones(3, 2).t(),
    "other dtype": lambda: x.double(),
    "requires grad": lambda: torch.ones(2, 3, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(x, requires_grad=False),
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "two": lambda: TwoTensor(x, x),
    "two of another inside": lambda: TwoTensor(x, x.t().contiguous().t()),
    "int8": lambda: Int8Weight.from_float(x),
    "tagged": lambda: Tagged(x),
    "other context": lambda: Tagged(x, 2),
    "list in a context": lambda: Tagged(x, [2]),
}


@pytest.mark.parametrize("name", MADE)
def test_equal_ones_are_equal_and_others_are_not(name: str) -> None:
    described = {other: metadata_of(make(), "x", {}) for other, make in MADE.items()}
    again = metadata_of(MADE[name](), "x", {})
    assert [other for other, metadata in described.items() if metadata == again] == [name]


def test_what_was_made_in_inference_mode() -> None:
    with torch.inference_mode():
        other = torch.ones(2, 3)
    assert metadata_of(other, "x", {}).is_inference and metadata_of(other, "x", {}) != metadata_of(x, "x", {})


def test_symbols_stand_for_sizes() -> None:
    places = {"x.size(0)": "s0", "x.a.size(0)": "s0", "x.b.size(0)": "s0"}
    one, other = (metadata_of(TwoTensor(torch.ones(n, 3), torch.ones(n, 3)), "x", places) for n in (2, 5))
    assert one == other and one.size == ("s0", 3)


def test_a_context_that_changes_was_another() -> None:
    tag = [1]
    before = metadata_of(Tagged(x, tag), "x", {})
    tag.append(2)
    assert before != metadata_of(Tagged(x, tag), "x", {})
