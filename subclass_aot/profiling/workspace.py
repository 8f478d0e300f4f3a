"""Memory that kernels take while they run."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.meta import Operation

_aten: Any = torch.ops.aten

_FACTORS = {
    _aten.mm.default: (0, 1),
    _aten.addmm.default: (1, 2),
}
"""Positions of the factors of products that go to a library for matrices."""


def workspace_of(operation: Operation) -> int:
    """Returns the bytes that a kernel takes while it runs, where that is known, beside its results.

    On a CPU, a factor that neither has contiguous rows nor contiguous columns is copied for the library that
    multiplies matrices; an expanded gradient, as that of a sum, is one.

    Args:
        operation: Any operator that has run.
    """
    return sum(
        operation.args[i].nbytes
        for i in _FACTORS.get(operation.func, ())
        if operation.args[i].device.type == "cpu" and _is_copied(operation.args[i])
    )


def _is_copied(matrix: torch.Tensor) -> bool:
    """Returns whether a library for matrices cannot read a matrix where it lies."""
    (rows, columns), (down, right) = matrix.shape, matrix.stride()
    return not ((down == 1 and right >= max(1, rows)) or (right == 1 and down >= max(1, columns)))
