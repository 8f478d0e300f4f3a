"""Computes the dense tensor that stands for a wrapper in an operator, and checks its size and dtype."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.kit.wrapper.serve import errors


def dense(wrapper: Any) -> torch.Tensor:
    """Computes what a wrapper stands for. Operators call this, and not `to_plain` itself.

    Args:
        wrapper: A wrapper whose class has `to_plain`.

    Returns:
        A tensor of the size and dtype of the wrapper.

    Raises:
        OperatorRuleError: `to_plain` gives another size or dtype: operators would have results of that.
    """
    plain: torch.Tensor = wrapper.to_plain()
    if _fits(plain, wrapper):
        return plain
    device = wrapper.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        # Autocast is for the operators of a program, and not for those that say what its tensors are.
        with torch.autocast(device, enabled=False):
            plain = wrapper.to_plain()
        if _fits(plain, wrapper):
            return plain
    raise errors.other_than_outer(wrapper, plain)


def where_it_lies(wrapper: Any) -> torch.Tensor:
    """Copies what a wrapper stands for to the strides and the offset of the wrapper: `as_strided` counts by them.

    Args:
        wrapper: A wrapper whose class has `to_plain`.
    """
    plain = dense(wrapper)
    if plain.stride() == wrapper.stride() and not wrapper.storage_offset():
        return plain.clone()
    held = sum((length - 1) * step for length, step in zip(wrapper.shape, wrapper.stride(), strict=True)) + 1
    memory = plain.new_empty(wrapper.storage_offset() + held if wrapper.numel() else 0)
    return memory.as_strided(wrapper.shape, wrapper.stride(), wrapper.storage_offset()).copy_(plain)


def _fits(plain: torch.Tensor, wrapper: torch.Tensor) -> bool:
    """Checks dtype and sizes against those of the wrapper; symbolic sizes that may be equal fit, and add no guard."""
    if plain.dtype is not wrapper.dtype:
        return False
    mine, theirs = plain.shape, wrapper.shape
    if len(mine) != len(theirs):
        return False
    for a, b in zip(mine, theirs, strict=True):
        if a is not b and _torch.symbolic.statically_known_true(a != b):
            return False
    return True
