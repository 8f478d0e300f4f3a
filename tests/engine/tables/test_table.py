"""Tables: what is read of an object, and what is put into it again."""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from subclass_aot.base.exact import items_of, same_items
from subclass_aot.engine.tables import Table
from tests.interrupting import Alarm, Lines


class Loud(list[Any]):
    """A list that must not be asked by its own methods."""

    def __iter__(self) -> Any:
        raise AssertionError

    def clear(self) -> None:
        raise AssertionError


class LoudDict(dict[str, Any]):
    """A dict that must not be asked by its own methods."""

    def items(self) -> Any:
        raise AssertionError

    __setitem__ = __delitem__ = items  # type: ignore[assignment]


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
    "dict of a user": (lambda: LoudDict(a=1), Table("items"), [("a", 1)], [("b", 2)]),
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


@pytest.mark.parametrize(("value", "limit"), [(deque([], 3), 3), (defaultdict(list), list), ([], None)])
def test_limits_of_containers(value: Any, limit: Any) -> None:
    assert Table.limit_of(value) == limit


@pytest.mark.parametrize(
    ("table", "key", "step"),
    [
        (Table("attributes"), "a", ".a"),
        (Table("_buffers"), "mean", ".mean"),
        (Table("cells"), "x", "::x"),
        (Table("keys"), 2, ".keys()[2]"),
        (Table("items"), "k", "['k']"),
        (Table("items"), torch.ones(1), "[tensor 2]"),
        (Table("items"), torch.nn.ReLU(), "[ReLU 2]"),
        (Table("items"), torch.nn.ReLU, "[<class 'torch.nn.modules.activation.ReLU'>]"),
        (Table("items"), lambda: None, "[function 2]"),
        (Table("items"), None, "[None]"),
        (Table("items"), ("a", 1), "[('a', 1)]"),
        (Table("items"), torch.float32, "[torch.float32]"),
    ],
)
def test_steps_of_paths(table: Table, key: Any, step: str) -> None:
    assert table.step(key, 2) == step


def test_an_empty_cell_holds_nothing() -> None:
    def function() -> Any:
        return first, later

    first = 1
    assert Table("cells").read(function) == [("first", 1)]
    later = 2
    assert Table("cells").read(function) == [("first", 1), ("later", 2)]


def test_what_is_put_on_a_tensor() -> None:
    tensor: Any = torch.ones(2)
    gradient = torch.ones(2)
    tensor.kept = 1
    Table("attributes").put_on(tensor, [("note", "here")])
    Table("grad").put_on(tensor, [("grad", gradient)])
    assert vars(tensor) == {"kept": 1, "note": "here"} and tensor.grad is gradient


@pytest.mark.every_case
@pytest.mark.parametrize("kind", [list, deque, set])
def test_a_container_is_filled_again_whatever_comes_between(kind: type) -> None:
    """A signal at any line leaves what was there, or what is to be there."""
    before, after = kind([1, 2]), kind([3, 4, 5])
    with Lines() as lines:
        Table.refill(kind([1, 2]), [3, 4, 5])
    for at in range(lines.count):
        holder = kind([1, 2])
        with pytest.raises(Alarm), Lines(at):
            Table.refill(holder, [3, 4, 5])
        assert holder in (before, after)
    assert lines.count > 1


def test_an_ordered_dict_is_seen_to_be_unchanged_while_it_has_no_order() -> None:
    table, hooks = Table("items"), OrderedDict[str, int]()
    for key in ("a", "b"):
        watched = table.watched(hooks)
        assert watched == (hooks,)
        kept = (watched[0], items_of(watched[0]))
        assert same_items(kept)
        hooks[key] = 1
        assert not same_items(kept)
    assert table.watched(hooks) == (Table.UNSEEN,)
