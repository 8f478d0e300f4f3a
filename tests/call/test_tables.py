"""Where an object holds others: every table is read, written and named as Python itself does it."""

from __future__ import annotations

import argparse
import enum
import functools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from subclass_aot.call.tables import Table

from subclass_aot import TwoTensor
from subclass_aot.call import tables


class Plain:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("__hidden", "first", "second")

    def __init__(self) -> None:
        self.first, self.__hidden = 1, 2


class Loud(dict[str, Any]):
    """Has another view of itself than its contents."""

    def items(self) -> Any:
        raise AssertionError("the contents themselves are read")

    __setitem__ = __delitem__ = items  # type: ignore[assignment]


class Colour(enum.Enum):
    RED = 1


def closure() -> Callable[[], Any]:
    first, second = 1, [2]

    def function() -> Any:
        return first, second, later

    if not first:
        later = 3
    return function


CASES: dict[str, tuple[Callable[[], Any], Table, list[tuple[Any, Any]], list[tuple[Any, Any]]]] = {
    "list": (lambda: [1, 2], Table("elements"), [(0, 1), (1, 2)], [(0, 3)]),
    "deque": (lambda: deque([1, 2]), Table("elements"), [(0, 1), (1, 2)], [(0, 3), (1, 1), (2, 2)]),
    "set": (lambda: {1}, Table("members"), [(0, 1)], [(0, 5)]),
    "dict": (lambda: {"a": 1, "b": 2}, Table("items"), [("a", 1), ("b", 2)], [("b", 2), ("a", 3)]),
    "ordered": (lambda: OrderedDict(a=1, b=2), Table("items"), [("a", 1), ("b", 2)], [("b", 1), ("a", 2)]),
    "its own dict": (lambda: Loud(a=1), Table("items"), [("a", 1)], [("b", 2)]),
    "attributes": (lambda: Plain(a=1, b=2), Table("attributes", but=frozenset("b")), [("a", 1)], [("c", 3)]),
    "public ones": (lambda: Plain(a=1, _b=2), Table("attributes", public=True), [("a", 1)], []),
    "slots": (Slotted, Table("slots", ("first", "second")), [("first", 1)], [("second", 2)]),
    "cells": (closure, Table("cells"), [("first", 1), ("second", [2])], [("first", 5), ("second", 6)]),
    "grad": (lambda: torch.ones(2), Table("grad"), [("grad", None)], [("grad", None)]),
    "partial": (
        lambda: functools.partial(len, 1, key=2),
        Table("partial"),
        [("func", len), ("args", (1,)), ("keywords", {"key": 2})],
        [("func", max), ("args", (3,)), ("keywords", {})],
    ),
    "buffers": (torch.nn.Module, Table("_buffers"), [], [("mean", None)]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_and_written(name: str) -> None:
    make, table, contents, others = CASES[name]
    holder = make()
    assert table.read(holder) == contents
    table.write(holder, others)
    assert table.read(holder) == others
    table.write(holder, contents)
    assert table.read(holder) == contents


def test_what_does_not_belong_to_a_table_stays() -> None:
    holder = Plain(a=1, b=2)
    Table("attributes", but=frozenset("b")).write(holder, [("a", 5)])
    assert vars(holder) == {"a": 5, "b": 2}


@pytest.mark.parametrize(
    ("table", "key", "step"),
    [
        (Table("attributes"), "a", ".a"),
        (Table("_buffers"), "mean", ".mean"),
        (Table("cells"), "x", "::x"),
        (Table("keys"), 2, ".keys()[2]"),
        (Table("items"), "k", "['k']"),
        (Table("items"), torch.ones(1), "[a tensor]"),
    ],
)
def test_steps_of_paths(table: Table, key: Any, step: str) -> None:
    assert table.step(key) == step


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        (Plain(), ["attributes"]),
        (Slotted(), ["slots"]),
        ([], ["elements"]),
        (deque(), ["elements"]),
        (Loud(), ["items", "attributes"]),
        (defaultdict(list), ["items"]),
        ({1}, ["members"]),
        (types.SimpleNamespace(), ["attributes"]),
        (argparse.Namespace(), ["attributes"]),
        (torch.distributions.Normal(0.0, 1.0), ["attributes"]),
        (Colour.RED, []),
        (ValueError(), []),
        (object(), []),
        ((1,), []),
        (iter([]), []),
        (torch.Generator(), []),
        (pytest.Cache, []),
    ],
    ids=lambda x: type(x).__name__,
)
def test_which_objects_are_looked_into(value: Any, kinds: list[str]) -> None:
    assert [table.kind for table in tables.object_tables(value)] == kinds


def test_slots_have_their_mangled_names() -> None:
    (table,) = tables.object_tables(Slotted())
    assert table.only == ("_Slotted__hidden", "first", "second")


def test_contents_are_compared_by_identity_and_order() -> None:
    one, other = [1.5], [1.5]
    assert tables.same_contents([("a", one)], [("a", one)])
    assert not tables.same_contents([("a", one)], [("a", other)])
    assert not tables.same_contents([("a", one), ("b", one)], [("b", one), ("a", one)])
    key = torch.ones(2)
    assert tables.same_contents([(key, one)], [(key, one)])
    assert not tables.same_contents([(key, one)], [(torch.ones(2), one)])


def test_what_a_program_put_on_a_tensor() -> None:
    assert tables.extras_of(torch.ones(2)) == []
    dense, two = torch.ones(2), TwoTensor(torch.ones(2), torch.ones(2))
    assert tables.extras_of(two) == []
    dense.note = two.note = "here"  # type: ignore[attr-defined]
    for tensor in (dense, two):
        (table,) = tables.extras_of(tensor)
        assert table.read(tensor) == [("note", "here")]
    assert [t.kind for t in tables.extras_with_grad(torch.ones(2).requires_grad_())] == ["grad"]


def only_appended(box: list[Any]) -> Callable[[], Any]:
    return lambda: box.append(1)


def also_read(box: list[Any]) -> Callable[[], Any]:
    return lambda: (box.append(1), len(box))


def read_inside(box: list[Any]) -> Callable[[], Any]:
    return lambda: [lambda: box[0]]


def test_who_only_appends() -> None:
    assert tables.only_appends(only_appended([]).__code__, "box")
    assert not tables.only_appends(also_read([]).__code__, "box")
    assert not tables.only_appends(read_inside([]).__code__, "box")


def test_a_function_holds_its_closure_its_attributes_and_the_state_that_it_names() -> None:
    function: Any = closure()
    assert [t.kind for t in tables.function_tables(function, None)] == ["cells", "attributes"]
    (found,) = [t for t in tables.function_tables(only_reads_a_global, __name__) if t.kind == "globals"]
    assert found.only == ("STATE", "made_later")
    assert tables.function_tables(torch.nn.functional.relu, torch.nn.functional.__name__) == []


STATE = [1]


def only_reads_a_global() -> Any:
    global made_later
    made_later = torch.ones(len(STATE))
    return made_later


@pytest.mark.parametrize(("value", "limit"), [(deque([], 3), 3), (defaultdict(list), list), ([], None)])
def test_what_a_container_has_beside_its_contents(value: Any, limit: Any) -> None:
    assert tables.limit_of(value) == limit
