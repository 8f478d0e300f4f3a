"""Tables: what is read of an object, and what is put into it again."""

from __future__ import annotations

import functools
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from subclass_aot.tables import Table, limit_of, object_tables, tables_of


class Loud(list[Any]):
    """A list that must not be asked by its own methods."""

    def __iter__(self) -> Any:
        raise AssertionError

    def clear(self) -> None:
        raise AssertionError


@dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    y: int


def closure() -> Callable[[], int]:
    x = 1
    return lambda: x


MAKERS: dict[str, tuple[Callable[[], Any], Table, list[tuple[Any, Any]], list[tuple[Any, Any]]]] = {
    "list": (lambda: [1, 2], Table("elements"), [(0, 1), (1, 2)], [(0, 5)]),
    "list of a user": (lambda: Loud([1]), Table("elements"), [(0, 1)], [(0, 2), (1, 3)]),
    "deque": (lambda: deque([1], maxlen=2), Table("elements"), [(0, 1)], [(0, 2), (1, 3)]),
    "set": (lambda: {1}, Table("members"), [(0, 1)], [(0, 2)]),
    "dict": (lambda: {"a": 1, "b": 2}, Table("items"), [("a", 1), ("b", 2)], [("b", 3), ("a", 1)]),
    "ordered dict": (lambda: OrderedDict(a=1, b=2), Table("items"), [("a", 1), ("b", 2)], [("b", 3), ("a", 1)]),
    "attributes": (lambda: SimpleNamespace(x=1), Table("attributes"), [("x", 1)], [("y", 2)]),
    "all but some": (lambda: SimpleNamespace(x=1, y=2), Table("attributes", but=frozenset("y")), [("x", 1)], []),
    "public": (lambda: SimpleNamespace(x=1, _y=2), Table("attributes", public=True), [("x", 1)], [("z", 3)]),
    "slots": (lambda: Frozen(1, 2), Table("slots", ("x", "y")), [("x", 1), ("y", 2)], [("x", 3)]),
    "cells": (closure, Table("cells"), [("x", 1)], [("x", 2)]),
    "partial": (
        lambda: functools.partial(max, 1, key=abs),
        Table("partial"),
        [("func", max), ("args", (1,)), ("keywords", {"key": abs})],
        [("func", min), ("args", (2,)), ("keywords", {})],
    ),
    "module": (lambda: torch.nn.Linear(1, 1, bias=False), Table("_modules"), [], [("child", None)]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_written_is_read(name: str) -> None:
    make, table, before, after = MAKERS[name]
    holder = make()
    assert table.read(holder) == before
    table.write(holder, after)
    assert table.read(holder) == after
    table.write(holder, before)
    assert table.read(holder) == before


def test_what_does_not_belong_to_a_table_stays() -> None:
    holder = SimpleNamespace(x=1, _y=2)
    Table("attributes", public=True).write(holder, [])
    assert vars(holder) == {"_y": 2}


def test_readings_are_compared_by_identity_and_in_order() -> None:
    a, b = torch.zeros(1), torch.zeros(1)
    assert Table.same([("x", a), (b, 1)], [("x", a), (b, 1)])
    assert not Table.same([("x", a)], [("x", b)])
    assert not Table.same([(a, 1)], [(b, 1)])
    assert not Table.same([("x", a), ("y", b)], [("y", b), ("x", a)])


def test_which_objects_are_looked_into() -> None:
    kinds = [table.kind for table in object_tables(Loud())]
    assert kinds == ["elements", "attributes"]
    assert not object_tables(3) and not object_tables(torch.Generator()) and not object_tables(ValueError())
    assert [table.kind for table in tables_of({SimpleNamespace: 1}, False, None, False)] == ["items"]


def test_limits_of_containers() -> None:
    assert limit_of(deque(maxlen=3)) == 3 and limit_of([]) is None
