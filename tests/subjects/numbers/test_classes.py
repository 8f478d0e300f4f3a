"""Classes of symbolic numbers, as programs see them."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile


def by_match(n: object) -> int:
    match n:
        case int():
            return 2
        case float():
            return 3
        case _:
            return 5


@functools.singledispatch
def by_dispatch(n: object) -> int:
    return 5


@by_dispatch.register
def _(n: int) -> int:
    return 2


@by_dispatch.register
def _(n: float) -> int:
    return 3


def by_attribute(n: object) -> int:
    return {"int": 2, "float": 3}.get(n.__class__.__name__, 5)


def by_registered_class(n: object) -> int:
    return 2 if isinstance(n, numbers.Integral) else 3 if isinstance(n, numbers.Real) else 5


def of_torch(n: object) -> int:
    """What tells symbols from numbers does so as before."""
    return 2 if isinstance(n, int | torch.SymInt) else 3 if isinstance(n, float | torch.SymFloat) else 5


PROGRAMS = [by_match, by_dispatch, by_attribute, by_registered_class, of_torch]


@pytest.mark.parametrize("tells", PROGRAMS)
def test_a_size_is_an_int(tells: Callable[[Any], int]) -> None:
    compiled = aot_compile(lambda x: x * tells(x.shape[0]) * tells(x.shape[0] / 2))
    for size in (3, 4, 5, 6):
        assert compiled(torch.ones(size))[0] == 6
    assert len(compiled.recompiles) == 1


@pytest.mark.parametrize("tells", PROGRAMS)
def test_a_number_that_changes_is_one(tells: Callable[[Any], int]) -> None:
    compiled = aot_compile(lambda x, n: x * tells(n))
    for n in (2, 3, 4, 0.5, 0.25, 0.75):
        assert compiled(torch.ones(1), n) == tells(n)


def test_the_classes_are_as_they_were_afterwards() -> None:
    compiled = aot_compile(lambda x, n: x * n)
    for n in (2, 3):
        compiled(torch.ones(1), n)
    for cls in (torch.SymInt, torch.SymFloat, torch.SymBool):
        assert "__class__" not in vars(cls)
        assert cls.__class__ is type
