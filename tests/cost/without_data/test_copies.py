"""Deep copies share what cannot be copied and does not change."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from subclass_aot.cost.without_data.copies import deep_copied


class Object:
    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


def test_modules_and_locks_are_shared() -> None:
    inner = Object(lock=threading.RLock(), rows=[1])
    value = Object(math=math, lock=threading.Lock(), inner=inner, again=inner)
    other = deep_copied(value, {})
    assert other.math is math and other.lock is value.lock and other.inner.lock is inner.lock
    assert other.inner is other.again is not inner and other.inner.rows == [1] and other.inner.rows is not inner.rows


def test_what_changes_is_not() -> None:
    with pytest.raises(TypeError, match="generator"):
        deep_copied([math, (i for i in range(3))], {})


def test_copies_of_one_memo_belong_together() -> None:
    """Ids of what a copy has left behind are none of another object's."""
    memo: dict[int, Any] = {}
    rows = [1, 2]
    first = deep_copied({"rows": rows}, memo)
    for _ in range(100):
        other = deep_copied(Object(rows=rows, other={"a": [3]}), memo)
        assert other.rows is first["rows"] and other.other == {"a": [3]}
