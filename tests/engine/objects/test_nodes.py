"""Nodes: what a traced function sees another thing for, and tuples that are made again."""

from __future__ import annotations

import collections
import types
from typing import Any, NamedTuple

import pytest
import torch

from subclass_aot.engine.objects.nodes import (
    Node,
    NumberAt,
    ObjectAt,
    TensorAt,
    TupleAt,
    ValueAt,
    WeakAt,
    is_replaced,
    make_tuple,
    sized,
    steps_of,
    value_of,
)
from subclass_aot.engine.tables import has_vars


class Point(NamedTuple):
    x: Any
    y: Any


class Checked(tuple[Any, ...]):
    """A tuple whose constructor takes something else than its elements."""

    def __new__(cls, *, count: int) -> Checked:
        return tuple.__new__(cls, range(count))

    def method(self) -> int:
        return len(self)


Old = collections.namedtuple("Old", "x y")


@pytest.mark.parametrize(
    ("node", "replaced"),
    [
        (TensorAt(0), True),
        (NumberAt(0), True),
        (ObjectAt(0), False),
        (ValueAt(1), False),
        (ValueAt(1, stand_in=2), True),
        (TupleAt((1,), (ValueAt(1), ObjectAt(0))), False),
        (TupleAt((1,), (ValueAt(1), TupleAt((), (TensorAt(0),)))), True),
        (WeakAt(None, ObjectAt(0)), False),
        (WeakAt(None, TensorAt(0)), True),
    ],
)
def test_what_a_function_sees_another_thing_for(node: Node, replaced: bool) -> None:
    assert is_replaced(node) is replaced


@pytest.mark.parametrize(
    "value", [(), (1, 2), Point(1, 2), Old(1, 2), Checked(count=2), torch.rand(3).max(0), torch.rand(2, 2).sort()]
)
def test_tuples_of_any_class(value: Any) -> None:
    made = make_tuple(type(value), [*value, *([vars(value)] if has_vars(type(value)) else [])])
    assert type(made) is type(value) and len(made) == len(value)
    assert all(a is b for a, b in zip(made, value, strict=True))


@pytest.mark.parametrize("base", [int, float, complex, str, bytes, frozenset])
def test_values_with_attributes(base: type) -> None:
    cls = type("Mine", (base,), {"__int__": None, "__float__": None, "__str__": None, "__iter__": None})
    value: Any = cls()
    value.unit = "cm"
    plain = value_of(value)
    assert type(plain) is base and plain == base()
    made = make_tuple(cls, (plain, vars(value)))
    assert type(made) is cls and made == value and vars(made) is vars(value)


def test_steps() -> None:
    assert steps_of(tuple, 2) == ["[0]", "[1]"] and steps_of(types.MethodType, 2) == [".__self__", ".__func__"]
    assert steps_of(Checked, 2) == ["[0]", ".__dict__"]
    assert steps_of(type("Mine", (int,), {}), 2) == ["", ".__dict__"]


def test_methods() -> None:
    owner = Checked(count=3)
    made = make_tuple(types.MethodType, (owner, Checked.method))
    assert made == owner.method and made() == 3


@pytest.mark.parametrize("number", [0, 2, 10**12])
def test_a_tensor_that_stands_for_a_number(number: int) -> None:
    tensor = sized(number)
    assert tensor.size(0) == number and tensor.untyped_storage().nbytes() == 0


def test_the_class_of_a_tuple() -> None:
    assert TupleAt(Point(1, 2), ()).cls is Point
