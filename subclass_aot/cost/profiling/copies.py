"""Copies that kernels make of what they are given, on any device."""

from __future__ import annotations

import torch

from subclass_aot.meta import Operation


def copied_in_between(operation: Operation, x: torch.Tensor) -> int:
    """Returns the bytes of what a roll along one dim gives to that along the next."""
    shifts = operation.args[1]
    return x.nbytes if isinstance(shifts, list | tuple) and len(shifts) > 1 else 0


def is_copied(matrix: torch.Tensor) -> bool:
    """Returns whether a library for matrices cannot read a matrix where it lies."""
    (rows, columns), (down, right) = matrix.shape, matrix.stride()
    return not ((down == 1 and right >= max(1, rows)) or (right == 1 and down >= max(1, columns)))
