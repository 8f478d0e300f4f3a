"""What a trace with symbols runs in is put back, and its places are those of the engine."""

from __future__ import annotations

import pytest
import torch

from subclass_aot.engine.trace import numbers
from subclass_aot.subjects.numbers import around


def test_the_places_of_the_engine_are_filled() -> None:
    assert numbers.attempt._function is around.around_attempt and numbers.program._function is around.around_program
    assert numbers.were_met() is False


@pytest.mark.parametrize("reads", [True, False])
def test_classes_of_symbols_are_as_before(reads: bool) -> None:
    before = {name: vars(torch.SymInt).get(name) for name in ("__repr__", "__hash__", "__int__", "__add__")}
    with pytest.raises(ZeroDivisionError), numbers.attempt(False) as hashes, numbers.program(reads):
        assert not hashes.refused and torch.SymInt.__repr__ is not before["__repr__"]
        raise ZeroDivisionError
    assert {name: vars(torch.SymInt).get(name) for name in before} == before
