"""Clauses 7 to 14, on classes with one mistake each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Outer, WrapperTensor
from subclass_aot.testing.contract.flatten import with_twice_the_rows
from subclass_aot.testing.contract.trial import DoesNotApply
from tests.testing.contract.classes import Held, Scaled, broken, held, int8_weight, scaled, two_tensor
from tests.testing.contract.wrong_apart import Asking, Cloning, Dense, ForgetsNote, NoneInside, OtherNames, OwnSize

ONLY = range(7, 15)


@pytest.mark.parametrize("make", [scaled(Scaled), held(Held), two_tensor, int8_weight])
def test_right_classes(make: Any) -> None:
    assert broken(make, ONLY) == {}


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (held(Cloning), "no copies", "held is another object, with memory of its own"),
        (held(OwnSize), "other sizes", "asked for 8 rows, it has 4"),
        (held(Dense), "protocol", "unflatten makes a Tensor"),
        (held(ForgetsNote, lambda: "a"), "round trip", "has other names or another context: (['held'], '')"),
        (held(NoneInside), "names", "absent is a NoneType"),
        (held(Asking), "flatten is direct", "it calls ['sum']"),
        (held(OtherNames), "stable order", "one tensor has the names"),
    ],
)
def test_one_mistake(make: Any, name: str, says: str) -> None:
    assert says in broken(make, ONLY)[name]


class DropsNote(Held):
    """What is computed has the note of the constructor."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        return cls(result.held) if func is torch.ops.aten.mul.Tensor else result


def test_a_note_that_an_operator_drops() -> None:
    assert broken(held(DropsNote), ONLY) == {}
    found = broken(held(DropsNote, lambda: "a"), ONLY)
    assert found == {"attributes": "after x * 2 its attribute note is '', not 'a'"}


def test_twice_the_rows() -> None:
    tensor = two_tensor()
    larger: Any = with_twice_the_rows(tensor)
    assert type(larger) is type(tensor) and torch.equal(larger.b, torch.cat([tensor.b, tensor.b]))
    assert larger.shape == (8, 6) and larger.stride() == (6, 1)
    with pytest.raises(DoesNotApply):
        with_twice_the_rows(tensor.sum())


class Diagonal(WrapperTensor):
    """One field says the size of both dims."""

    values: torch.Tensor

    def outer_metadata(self) -> Outer:
        size = self.values.shape[0]
        return Outer((size, size), None, dtype=self.values.dtype, device=self.values.device)

    def to_plain(self) -> torch.Tensor:
        return self.values.diag()


def test_nobody_knows_how_fields_grow_that_have_fewer_dims() -> None:
    with pytest.raises(DoesNotApply, match="the size of several"):
        with_twice_the_rows(Diagonal(torch.randn(5)))
    assert broken(lambda: Diagonal(torch.randn(5)), [*ONLY, 36]) == {}
