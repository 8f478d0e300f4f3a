"""Tables that random programs read, kept in caches of `functools`."""

from __future__ import annotations

import functools

import torch


@functools.cache
def table(n: int, dtype: torch.dtype) -> torch.Tensor:
    """1 to `n`, over `n`."""
    return (torch.arange(1, n + 1, dtype=torch.float64) / n).to(dtype)


@functools.lru_cache(maxsize=2)
def rotations(n: int) -> dict[str, tuple[torch.Tensor, ...]]:
    """Cosines and sines of `n` angles."""
    angles = table(n, torch.float64)
    return {"both": (angles.cos(), angles.sin())}


@functools.lru_cache(maxsize=1)
def visible(rows: int, columns: int) -> torch.Tensor:
    """A triangle, of which the larger table in the cache is read."""
    return torch.ones(8, 8, dtype=torch.bool).tril()[:rows, :columns]


def clear() -> None:
    """Empties the caches."""
    for cache in (table, rotations, visible):
        cache.cache_clear()
