"""Sizes of fields, compared in an outer rule: what a kernel reads of one field is as long as another one says.

Sizes that are symbols are not compared: that would be a guard, and of sizes that depend on data there is no answer.
"""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.errors import InnerTensorError


def are_known(*tensors: torch.Tensor) -> bool:
    """Returns whether the sizes of tensors are numbers.

    >>> are_known(torch.zeros(2, 3))
    True
    """
    for tensor in tensors:  # noqa: SIM110 - as a view in eager mode comes by here, no other function runs
        if torch.SymInt in map(type, tensor.shape):
            return False
    return True


def lines_up(whole: torch.Tensor, *fields: torch.Tensor | None) -> bool:
    """Returns whether fields are as long as the whole along each dim, or 1 there. Dims that they lack are the first.

    >>> lines_up(torch.zeros(2, 3), torch.zeros(2, 1), None), lines_up(torch.zeros(2, 3), torch.zeros(3, 1))
    (True, False)
    """
    sizes: tuple[object, ...] = whole.shape
    for field in fields:
        if field is None:
            continue
        lacking = len(sizes) - field.dim()
        if lacking < 0:
            return False
        for dim, size in enumerate(field.shape, lacking):
            if type(size) is type(sizes[dim]) is int and size != sizes[dim] and size != 1:
                return False
    return True


def misfit(fields: Any, layout: str) -> InnerTensorError:
    """Returns the error for fields whose sizes do not fit.

    Args:
        fields: The `self` of an outer rule.
        layout: The sizes that they should have.
    """
    held = {name: value for name, value in fields.__dict__.items() if hasattr(value, "shape")}
    found = ", ".join(f"{name}{list(value.shape)}" for name, value in held.items())
    return InnerTensorError(f"{fields.__class__.__name__}: the sizes {found} do not fit. Right: {layout}")
