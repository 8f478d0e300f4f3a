"""The dense tensor that an operator takes for a wrapper: what `to_plain` gives, held to what `outer` says."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot._stack import user_line
from subclass_aot.errors import OperatorRuleError


def dense(wrapper: Any) -> torch.Tensor:
    """Computes what a wrapper stands for.

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
    cls = type(wrapper).__name__
    raise OperatorRuleError(
        f"{cls}.to_plain() gives {plain.dtype} {list(plain.shape)}, and {cls}.outer() says {wrapper.dtype} "
        f"{list(wrapper.shape)}: operators would have results of another dtype or size.\n"
        f"  at:       {user_line()}\n"
        f"  Instead:  give what outer() says, as by `.to(self.dtype)`: fields marked with structure() keep their\n"
        f"            dtype where a wrapper is converted, and so does a table that is no field."
    )


def _fits(plain: torch.Tensor, wrapper: torch.Tensor) -> bool:
    """Whether a dense tensor has the dtype of a wrapper, and no size that is known to be another; assumes nothing."""
    if plain.dtype is not wrapper.dtype:
        return False
    mine, theirs = plain.shape, wrapper.shape
    if len(mine) != len(theirs):
        return False
    return not any(a is not b and _torch.statically_known_true(a != b) for a, b in zip(mine, theirs, strict=True))
