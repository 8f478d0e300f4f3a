"""Python values among facts."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any

import pytest

from subclass_aot.engine.facts.constants import constant, digest_of, hash_of
from subclass_aot.engine.facts.fact import HASH


def test_what_may_change_is_copied() -> None:
    values: list[Any] = [[1], {"a": [1]}, ({1},)]
    kept = [constant(value) for value in values]
    values[0].append(2)
    values[1]["a"].append(2)
    values[2][0].add(2)
    assert [k.value for k in kept] == [[1], {"a": [1]}, ({1},)]


@pytest.mark.parametrize("value", [1, "a", (1, 2.0), len, int, None, Decimal(3)])
def test_what_stays_is_itself_and_has_no_digest(value: object) -> None:
    assert constant(value).value is value and constant(value).digest is None


def test_what_changes_in_silence_is_told_now() -> None:
    iterator = iter([1, 2])
    before = constant(iterator)
    next(iterator)
    assert before.digest is not None and before.digest != constant(iterator).digest


def test_no_digest_of_what_pickle_does_not_know() -> None:
    assert digest_of(threading.Lock()) is None and digest_of(1) == digest_of(1) != digest_of(2)


def test_the_hash_of_an_object() -> None:
    text = "some text that is long enough"
    found = hash_of(text, hash(text))
    assert found is not None and found.digest == HASH and found.value == hash(text)
    assert hash_of(text, hash(text) + 1) is None and hash_of([], 1 << 40) is None
