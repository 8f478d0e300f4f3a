"""Context values as JSON."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from subclass_aot import WrapperTensor
from subclass_aot.errors import StateDictError
from subclass_aot.files.classes import KnownClasses
from subclass_aot.files.context import from_json, to_json
from tests.files.classes import Mode, Range, Recipe


class Level(enum.IntEnum):
    LOW = 1


class Flags(enum.Flag):
    A = 1
    B = 2


@dataclass(frozen=True)
class Derived:
    low: int
    twice: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.low)


VALUES = [
    None, True, False, 0, -(10**30), 1.5, 0.1, -0.0, float("inf"), -float("inf"), "", "ä\n\"", (), (1,), (1, (2, "x")),
    [], [1, (2,)], {}, {"a": 1, (1, 2): [3], None: "b"}, frozenset(), frozenset({1, "a", (2,)}), torch.float8_e4m3fn,
    torch.bfloat16, torch.strided, torch.sparse_coo, torch.channels_last, torch.device("cpu"), torch.device("cuda", 1),
    torch.Size([]), torch.Size([2, 3]), Mode.ROWS, Level.LOW, Flags.A, Range(1.0, 2.0), Derived(3),
    Recipe(Mode.COLUMNS, torch.Size([1]), Range(-float("inf"), 1.0)),
]  # fmt: skip

CLASSES = KnownClasses([Mode, Level, Flags, Range, Derived, Recipe])


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))  # the text of a set is another in each process
def test_there_and_back(value: Any) -> None:
    text = json.dumps(to_json(value, "weight, field x"), allow_nan=False)
    found = from_json(json.loads(text), "weight, field x", CLASSES, WrapperTensor)
    assert found == value and type(found) is type(value)
    assert isinstance(value, frozenset) or repr(found) == repr(value)


def test_not_a_number() -> None:
    assert math.isnan(from_json(to_json(float("nan"), "x"), "x", CLASSES, WrapperTensor))


def test_equal_values_are_written_alike() -> None:
    assert to_json(frozenset({"a", "b", "c"}), "x") == to_json(frozenset({"c", "a", "b"}), "x")


class Number(int):
    pass


def local() -> None: ...


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (torch.ones(1), "weight, field x is a Tensor"),
        ((1, {"a": [b"bytes"]}), r"weight, field x\[1\]\['a'\]\[0\] is a bytes"),
        (Range(1.0, local), r"weight, field x.high is a function"),  # type: ignore[arg-type]
        (Number(3), "weight, field x is a Number"),
        (Recipe, "weight, field x is a type"),
        (1j, "weight, field x is a complex"),
        (frozenset({local}), "weight, field x: an element is a function"),
        ({object(): 1}, "weight, field x: a key is a object"),
        (torch.Generator(), "weight, field x is a Generator"),
    ],
)
def test_what_cannot_be_written_is_named(value: object, place: str) -> None:
    with pytest.raises(StateDictError, match=place + ", which a file cannot hold: .*\nA context can be written if"):
        to_json(value, "weight, field x")


@dataclass
class Dangerous:
    x: int = 0


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({}, "which no context value is"),
        ({"unknown": 1}, "which no context value is"),
        ({"dtype": "float33"}, "no attribute 'float33'"),
        ({"dtype": "save"}, "which no context value is"),
        ({"dtype": "strided"}, "which no context value is"),
        ({"device": "nowhere"}, "cannot be made of"),
        ({"frozenset": 3}, "cannot be made of"),
        ({"enum": "tests.files.classes:Mode", "member": "DIAGONALS"}, "cannot be made of.*DIAGONALS"),
        ({"enum": "tests.files.classes:Recipe", "member": "x"}, "Recipe is no enum"),
        ({"enum": "tests.files.classes:Mode"}, "cannot be made of"),
        ({"class": "tests.files.classes:Recipe", "fields": {"other": 1}}, "unexpected keyword argument 'other'"),
        ({"class": "tests.files.classes:Mode", "fields": {}}, "Mode is no dataclass or named tuple"),
        (
            {"class": "builtins:open", "fields": {"file": "x"}},
            "is of the class builtins:open, which nobody has defined",
        ),
        ({"class": f"{__name__}:Dangerous", "fields": {}}, "Dangerous, which nobody has defined here or handed in"),
    ],
)
def test_what_nobody_has_written_is_refused(written: Any, said: str) -> None:
    with pytest.raises(StateDictError, match=f"weight, field x.*{said}"):
        from_json(written, "weight, field x", CLASSES, WrapperTensor)
