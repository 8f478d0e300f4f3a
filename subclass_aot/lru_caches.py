"""Has the caches of `functools` forget traced tensors.

A trace fills them, as `lru_cache` of a function of sizes, with tensors that have no data. What is cached may be
computed once more, so a cache that holds one is cleared: the graph computes the tensor at each call, and eager mode and
the next trace compute it anew.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable
from typing import Any

_CACHE = functools._lru_cache_wrapper
_DEPTH = 4
"""Containers one in the other: a cached dict of tuples of tensors, in the table of the cache."""


def clear_if_cache(holder: object) -> bool:
    """Clears a holder of a traced tensor if it is a cache of `functools`.

    Args:
        holder: Any object.

    Returns:
        Whether it is one.
    """
    if type(holder) is not _CACHE:
        return False
    holder.cache_clear()
    return True


def forget_in_caches(tensors: Iterable[object]) -> bool:
    """Clears the caches that hold traced tensors, themselves or in containers.

    Args:
        tensors: The traced tensors.

    Returns:
        Whether there was one. Python finds holders by looking through all objects, which takes tens of milliseconds.
    """
    level: list[Any] = list(tensors)
    found, seen = False, {id(level)}
    for _ in range(_DEPTH):
        above: list[Any] = []
        for holder in gc.get_referrers(*level) if level else ():
            if clear_if_cache(holder):
                found = True
            elif isinstance(holder, dict | list | tuple | set) and id(holder) not in seen and holder is not above:
                seen.add(id(holder))
                above.append(holder)
        level = above
        seen.add(id(level))
    return found
