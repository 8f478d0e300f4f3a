"""What autograd takes for one tensor: a tensor and all its views have one history."""

from __future__ import annotations

import torch


def autograd_base(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor whose history a write into `tensor` changes: what it is a view of, or itself."""
    return tensor if tensor._base is None else tensor._base  # the base of a view of a view is the first tensor
