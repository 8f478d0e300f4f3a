"""The records that a file may hold."""

from __future__ import annotations

from subclass_aot.files.compiled.records import RECORDS, WORDS


def test_each_class_has_one_word() -> None:
    assert len(WORDS) == len(RECORDS)
