"""Python values as JSON, and back: one text for both kinds of files."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, NamedTuple

import pytest
import torch

from subclass_aot.base.plain_values import ValueReader, ValueWriter, is_named_tuple
from subclass_aot.base.refused import Refused
from subclass_aot.files.compiled.codec import Encoder
from subclass_aot.files.context import to_json


class Kind(Enum):
    ROWS = "rows"


class Pair(NamedTuple):
    low: float
    kind: Kind


class Reader(ValueReader):
    find = staticmethod({f"{__name__}:Kind": Kind, f"{__name__}:Pair": Pair}.__getitem__)


VALUES = [
    None, 3, 0.1, (1, (2,)), [1, ()], {"a": {1}, (1, 2): None}, frozenset("ab"), torch.Size((2, 3)), torch.float32,
    torch.device("cuda:1"), Kind.ROWS, Pair(float("-inf"), Kind.ROWS),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_both_kinds_of_files_have_one_text(value: Any) -> None:
    written = ValueWriter().write(value)
    assert written == to_json(value, "weight") == Encoder().write(value)
    found = Reader().read(json.loads(json.dumps(written, allow_nan=False)))
    assert found == value and type(found) is type(value)


def test_the_place_is_named() -> None:
    class Strict(ValueWriter):
        cannot = "{kind} is none"

    with pytest.raises(Refused, match="object is none") as caught:
        Strict().write({"a": [Pair(object(), Kind.ROWS)]})  # type: ignore[arg-type]
    assert "".join(caught.value.where) == "['a'][0].low"
    with pytest.raises(Refused, match="cannot be made of") as caught:
        Reader().read({"class": f"{__name__}:Pair", "fields": {"low": {"dtype": "nothing"}}})
    assert caught.value.where == [".low"]


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"what": 1},
        {"dtype": "strided"},
        {"enum": f"{__name__}:Pair", "member": "low"},
        {"class": "x", "fields": {}},
    ],
    ids=str,
)
def test_what_nobody_has_written_is_refused(written: Any) -> None:
    with pytest.raises(Refused):
        Reader().read(written)
    assert is_named_tuple(Pair) and not is_named_tuple(tuple)
