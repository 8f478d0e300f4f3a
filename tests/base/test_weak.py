"""Weak references of each kind: what they lead to, and others like them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot.base.weak import is_weak, make_weak, referent, weak_kind


class Cell:
    def method(self) -> int:
        return 1

    def __call__(self) -> int:
        return 2


class Hidden:
    def __getattribute__(self, name: str) -> Any:
        raise AttributeError(name)


@pytest.mark.parametrize("target", [Cell, lambda: torch.ones(2), lambda: torch.nn.Linear(1, 1)])
@pytest.mark.parametrize("make", [weakref.ref, weakref.proxy])
def test_what_they_lead_to(make: Callable[[Any], Any], target: Callable[[], Any]) -> None:
    value = target()
    reference = make(value)
    assert is_weak(reference) and not is_weak(value) and referent(reference) is value
    other = make_weak(weak_kind(reference), value)
    assert type(other) is type(reference) and referent(other) is value
    del value
    assert referent(reference) is None


def test_methods() -> None:
    cell = Cell()
    reference = weakref.WeakMethod(cell.method)
    assert is_weak(reference) and referent(reference) == cell.method
    assert referent(make_weak(weak_kind(reference), cell.method)) == cell.method


def test_what_hides_itself_is_not_looked_into() -> None:
    hidden = Hidden()
    assert referent(weakref.proxy(hidden)) is None
