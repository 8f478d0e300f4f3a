"""Indices that are symbols: `x[:, n - 1]` selects by the symbol, where torch's own indexing reads the number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_BASIC = (int, slice, type(None), type(Ellipsis))


def _selected(recorder: object, x: torch.Tensor, index: Any) -> Any:
    """Indexes a tensor, by numbers, slices and symbols."""
    parts = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(part, torch.SymInt) for part in parts):
        return NotImplemented
    if not all(isinstance(part, (*_BASIC, torch.SymInt)) and not isinstance(part, bool) for part in parts):
        return NotImplemented
    inner = sum(isinstance(part, int | slice | torch.SymInt) for part in parts)
    if inner > x.dim() or sum(part is Ellipsis for part in parts) > 1:
        return NotImplemented  # torch says what is wrong
    dims: list[tuple[int, Any]] = []
    dim = 0
    for part in parts:
        if isinstance(part, torch.SymInt):
            dims.append((dim, part))
        dim += x.dim() - inner if part is Ellipsis else not isinstance(part, int)
    rest = tuple(slice(None) if isinstance(part, torch.SymInt) else part for part in parts)
    if any(part != slice(None) for part in rest):
        x = x[rest]
    for dim, number in reversed(dims):
        x = x.select(dim, number)
    return x


def _set(recorder: object, x: torch.Tensor, index: Any, value: Any) -> Any:
    """Writes what such an index selects."""
    part = _selected(recorder, x, index)
    if part is NotImplemented:
        return NotImplemented
    part[...] = value
    return None


SYMBOLIC_INDICES: dict[Any, Callable[..., Any]] = {torch.Tensor.__getitem__: _selected, torch.Tensor.__setitem__: _set}
