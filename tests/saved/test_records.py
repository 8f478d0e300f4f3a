"""What holds of records beyond the types of their fields."""

from __future__ import annotations

import pytest
import torch

from subclass_aot import outputs
from subclass_aot.objects import Entry
from subclass_aot.outcome import Tuple
from subclass_aot.saved.records import LIMITS, RECORDS, WORDS
from subclass_aot.saved.stand_ins import SavedWay
from subclass_aot.signature import MetadataMutation, VersionBump
from subclass_aot.tables import Table


def test_each_class_has_one_word() -> None:
    assert len(WORDS) == len(RECORDS)


@pytest.mark.parametrize(
    "record",
    [
        VersionBump(0, "x"), VersionBump(0, ".a()"), SavedWay("values[0]", ()), SavedWay("args", ("__class__",)),
        SavedWay("args", ("a.b",)), Entry(0, Table("slots"), "a.b"), Entry(0, Table("slots"), 1), Tuple(list, ()),
        MetadataMutation(0, print, (), {}, False), outputs.ViewStep(eval, (None,), (), 0, None),
        outputs.ViewOfInput(0, print, (), False), SavedWay("args", ("class",)),
    ],
    ids=str,
)  # fmt: skip
def test_what_would_be_code_is_refused(record: object) -> None:
    assert LIMITS.problem(record)


@pytest.mark.parametrize(
    "record",
    [
        VersionBump(0, ".a.b[0]['x']"), SavedWay("leaves", (0, "__self__")), Entry(0, Table("items"), "a.b"),
        MetadataMutation(0, torch.ops.aten.t_.default, (), {}, False),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_none_is_taken(record: object) -> None:
    assert not LIMITS.problem(record)
