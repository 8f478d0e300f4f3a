"""Scales and zero points of groups of a weight in four bits: what the codes 0 to 15 stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch

Scales = Literal["min-max", "half-quadratic"]

_NORM = 0.7
_BETA = 10.0
_GROWTH = 1.01
_STEPS = 20
"""What the authors of half-quadratic quantization take; `_NORM` is their p, `_GROWTH` their kappa."""
_AT_ONCE = 2**17
"""As many elements stay in the cache of a processor while they are gone through again and again."""


def scales_of(grouped: torch.Tensor, scales: Scales) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns scale and zero point of each group.

    Args:
        grouped: `[..., groups, group]`.
        scales: How they are found: "min-max", or "half-quadratic".

    Returns:
        Two of `[..., groups]`, in the dtype of `grouped`.

    Raises:
        ValueError: There is no such way.
    """
    if scales not in _WAYS:
        raise ValueError(f"scales={scales!r} is no way to find scales; there are {', '.join(map(repr, _WAYS))}")
    return _WAYS[scales](grouped)


def codes_of(grouped: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """Returns the codes nearest to the elements of groups, as floats.

    Args:
        grouped: `[..., groups, group]`.
        scale: `[..., groups]`.
        zero: `[..., groups]`.
    """
    return (grouped / scale[..., None] + zero[..., None]).round().clamp(0, 15)


def _min_max(grouped: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Has the codes reach from the least element to the largest, and 0.0 have one of its own."""
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    scale = (high / 15 - low / 15).clamp(min=torch.finfo(grouped.dtype).tiny)
    return scale, (-low / scale).round().clamp(0, 15)


def _half_quadratic(grouped: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    parts = grouped.flatten(0, -2).split(max(_AT_ONCE // grouped.shape[-1], 1))
    scale, zero = (torch.cat(found) for found in zip(*map(_moved, parts), strict=True))
    return scale.view(grouped.shape[:-1]), zero.view(grouped.shape[:-1])


def _moved(grouped: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Moves zero points so that the sum of `|error| ** 0.7` is less, in which outliers count less than in a square.

    Of each group the best zero point is kept, and the first one is that of `_min_max`. From HQQ (Badri and Shaji, 2023,
    "Half-Quadratic Quantization of Large Machine Learning Models"): errors are split off by shrinkage, and the zero
    point is the mean of what is left. Errors are counted in steps of the scale here, so that beta means the same for
    weights of any size.
    """
    wide = torch.promote_types(grouped.dtype, torch.float32)  # in bfloat16, small moves would be none
    scale, best = _min_max(grouped)
    wanted = grouped.to(wide) / scale[..., None].to(wide)
    zero, least, beta = best.to(wide), torch.full_like(best, torch.inf, dtype=wide), _BETA
    for _ in range(_STEPS):  # always as many: to end early is to read a value
        tried = zero.to(grouped.dtype)
        total = _off(grouped, scale, tried)
        best = torch.where(total < least, tried, best)  # where a total is NaN, the first stays
        least = torch.where(total < least, total, least)
        codes = (wanted + zero[..., None]).round().clamp(0, 15)
        error = wanted - (codes - zero[..., None])
        size = error.abs().clamp(min=torch.finfo(wide).tiny)
        outlier = error.sign() * (size - size ** (_NORM - 1) / beta).clamp(min=0)
        zero = (codes - (wanted - outlier)).mean(-1)
        beta *= _GROWTH
    return scale, best


def _off(grouped: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """Returns what is to be small: of the dense weight, with what its dtype rounds."""
    dense = (codes_of(grouped, scale, zero) - zero[..., None]) * scale[..., None]
    wide = torch.promote_types(grouped.dtype, torch.float32)
    return ((grouped.to(wide) - dense.to(wide)) / scale[..., None].to(wide)).abs().pow(_NORM).sum(-1)


_WAYS: Mapping[str, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    "min-max": _min_max,
    "half-quadratic": _half_quadratic,
}
