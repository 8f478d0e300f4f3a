"""Which objects are looked into, by their classes, and what makes up such an object."""

from __future__ import annotations

import argparse
import enum
import functools
import types
from collections import OrderedDict, UserDict, defaultdict, deque
from typing import Any

import numpy
import pytest
import torch

from subclass_aot.engine.tables import Table, can_be_made, has_vars, is_object, object_tables, stands_for_another
from subclass_aot.engine.tables.owners import is_machinery


class Plain:
    pass


class Slotted:
    __slots__ = ("__hidden", "first", "second")


class _BelowSlotted(Slotted):
    __slots__ = ("__hidden", "__dict__", "third")


class OneSlot:
    __slots__ = "only"


class Named(dict[str, Any]):
    pass


class Number(int):
    pass


class Colour(enum.IntEnum):
    RED = 1


class Mine(Exception):
    pass


class Decorated:
    """A user's object that decorates a function, and counts its calls."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self.calls = 0


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        (Plain(), ["attributes"]),
        (Slotted(), ["slots"]),
        (_BelowSlotted(), ["attributes", "slots"]),
        ([], ["elements"]),
        (deque(), ["elements"]),
        (Named(), ["items", "attributes"]),
        (OrderedDict(), ["items", "attributes"]),
        (defaultdict(list), ["items"]),
        (UserDict(), ["attributes"]),
        ({1}, ["members"]),
        (types.SimpleNamespace(), ["attributes"]),
        (argparse.Namespace(), ["attributes"]),
        (torch.distributions.Normal(0.0, 1.0), ["attributes"]),
        (torch.fx.Graph(), []),
        (Number(1), []),
        (frozenset({1}), []),
        (Colour.RED, []),
        (Mine(), []),
        (object(), []),
        ((1,), []),
        (iter([]), []),
        (torch.Generator(), ["state"]),
        (torch.default_generator, []),
        (argparse.ArgumentParser, []),
    ],
    ids=lambda x: type(x).__name__,
)
def test_which_objects_are_looked_into(value: Any, kinds: list[str]) -> None:
    assert [table.kind for table in object_tables(value)] == kinds


def test_tables_of_one_object_do_not_belong_to_the_next() -> None:
    object_tables(Plain()).clear()
    assert len(object_tables(Plain())) == 1


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (Slotted(), ("_Slotted__hidden", "first", "second")),
        (_BelowSlotted(), ("_BelowSlotted__hidden", "third", "_Slotted__hidden", "first", "second")),
        (OneSlot(), ("only",)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_slots_have_the_names_that_python_gives_them(value: Any, names: tuple[str, ...]) -> None:
    """What a write through each name does is the oracle: private names of two classes are two slots."""
    table = object_tables(value)[-1]
    assert table.only == names
    for i, name in enumerate(names):
        setattr(value, name, i)
    assert [getattr(value, name) for name in names] == list(range(len(names))) and not getattr(value, "__dict__", None)


@pytest.mark.parametrize("cls", [Plain, Slotted, list, Named, type("Deque", (deque,), {}), types.SimpleNamespace])
def test_what_can_be_made_without_its_constructor(cls: Any) -> None:
    assert can_be_made(cls) and type(cls.__new__(cls)) is cls


@pytest.mark.parametrize("cls", [int, Number, torch.Event, Mine, types.FunctionType, torch.Tensor])
def test_what_has_more_than_python_shows(cls: type) -> None:
    assert not can_be_made(cls)


@pytest.mark.parametrize(
    ("key", "found"),
    [(Plain(), True), (Slotted(), True), ("a", False), (1, False), (torch.ones(1), False), (Colour.RED, False),
     (frozenset({1}), False), (object(), False)],
    ids=lambda x: type(x).__name__,
)  # fmt: skip
def test_which_keys_are_objects(key: object, found: bool) -> None:
    assert is_object(key) is found


@pytest.mark.parametrize(
    ("cls", "has"),
    [(Number, True), (type("Pair", (tuple,), {}), True), (type("Word", (str,), {}), True), (Plain, False),
     (Colour, False), (int, False), (tuple, False), (frozenset, False), (torch.Size, False), (numpy.float64, False),
     (type("Slotted", (str,), {"__slots__": ("unit",)}), False), (torch.nn.utils.rnn.PackedSequence, False)],
    ids=lambda x: getattr(x, "__name__", x),
)  # fmt: skip
def test_values_that_have_attributes(cls: type, has: bool) -> None:
    assert has_vars(cls) is has


def test_slots_of_a_value_are_a_table() -> None:
    word: Any = type("Slotted", (str,), {"__slots__": ("unit",), "__module__": "mine"})("a")
    assert object_tables(word) == [Table("slots", ("unit",))]


def test_what_stands_for_a_function() -> None:
    assert stands_for_another(functools.cache(len))
    assert not stands_for_another(Decorated(len)) and not stands_for_another(len)


@pytest.mark.parametrize(
    ("module", "found"),
    [("torch.nn", True), ("numpy.random", True), ("functools", True), ("subclass_aot.engine.tables", True),
     ("__main__", False), ("torchao.quantization", False), (__name__, False), ("collections", False)],
)  # fmt: skip
def test_modules_of_libraries(module: str, found: bool) -> None:
    assert is_machinery(module) is found
