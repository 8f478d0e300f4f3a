"""What autograd takes for one tensor: a tensor and all its views have one history."""

from __future__ import annotations

import torch

from subclass_aot import _torch


def autograd_base(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor whose history a write into `tensor` changes: what it is a view of, or itself."""
    base: torch.Tensor | None = _torch.base_of(tensor)  # that of a view of a view is the first tensor
    return tensor if base is None else base
