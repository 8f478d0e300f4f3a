"""Amounts of memory as text."""

from __future__ import annotations

from typing import Any

import pytest

from subclass_aot.cost.devices import bytes_of
from subclass_aot.errors import DeviceError


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        ("80GiB", 80 << 30),
        ("80 gib", 80 << 30),
        ("79.5GiB", 159 << 29),
        ("80GB", 80 * 10**9),
        ("1.5TB", 15 * 10**11),
        ("512", 512),
        ("512B", 512),
        ("1e9", 10**9),
        (1e9, 10**9),
        (7, 7),
        (0, 0),
    ],
)
def test_amounts(amount: Any, expected: int) -> None:
    assert bytes_of(amount) == expected


@pytest.mark.parametrize("amount", ["", "GiB", "80 G", "80 apples", "-1GB", -1, float("inf"), True, None, [1]])
def test_what_is_no_amount(amount: Any) -> None:
    with pytest.raises(DeviceError, match=r'is not an amount of memory. Write .* "80GiB" or "500MB"'):
        bytes_of(amount)
