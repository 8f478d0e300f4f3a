"""Amounts of memory as people write them."""

from __future__ import annotations

import re

from subclass_aot.errors import DeviceError

_UNITS: dict[str, int] = {"": 1, **{f"{p}B": 1000**i for i, p in enumerate(["", *"KMGTP"])}}
_UNITS |= {f"{p}IB": 1024**i for i, p in enumerate(["", *"KMGTP"]) if p}


MOST = 2**63
"""Sizes are less, in bytes and in elements."""


def bytes_of(amount: str | int | float) -> int:
    """Returns an amount of memory in bytes.

    Args:
        amount: Bytes as a number, or a number with a unit: "80GiB" is 80 * 2**30, "80GB" is 80 * 10**9.

    Raises:
        DeviceError: It is neither, or less than nothing.

    >>> bytes_of("80GiB"), bytes_of("80 GB"), bytes_of(1e9)
    (85899345920, 80000000000, 1000000000)
    """
    if isinstance(amount, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE]\+?[0-9]+)?)\s*([a-zA-Z]*)\s*", amount)
        unit = None if found is None else _UNITS.get(found[2].upper())
        if found is not None and unit is not None:
            amount_of = float(found[1]) * unit
            if amount_of < MOST:
                return round(amount_of)
    elif isinstance(amount, int | float) and not isinstance(amount, bool) and 0 <= amount < MOST:
        return round(amount)
    raise DeviceError(
        f'{amount!r} is not an amount of memory. Write a number of bytes, or one with a unit, as in "80GiB" or "500MB".'
    )
