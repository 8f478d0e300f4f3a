"""A program with all that it is given, on real tensors."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.cost.profiling.without_data import PyTree, copied, is_small_number
from subclass_aot.meta import MetaTensor, Spec

LARGEST = 0.02
"""Below which random numbers are: squares, exponentials and sums of many stay finite, and roots are real."""


def with_data(tree: PyTree, device: torch.device | None) -> Any:
    """Returns a copy of a tree of modules, optimizers, tensors and other objects in which each tensor has data.

    What has data keeps its values. Of tensors without data, numbers become random ones between 0 and 0.02, integers
    zeros, which are words of any vocabulary, and booleans true.

    Args:
        tree: Any tree.
        device: Where its tensors are; where they are or claim to be if left out.

    Raises:
        ProfileError: It cannot be copied.
    """
    return copied(tree, lambda tensor: _real(tensor, None if is_small_number(tensor) and not tensor.dim() else device))


def _real(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    made = _values(tensor.detach(), device)
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    else:
        made.requires_grad_(tensor.requires_grad)
    if tensor.is_leaf and tensor.grad is not None:
        made.grad = _values(tensor.grad.detach(), device)
    return made


def _values(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    if _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        names, context = tensor.__tensor_flatten__()
        inner = {name: getattr(tensor, name) for name in names}
        made = {k: _values(x, device) if isinstance(x, torch.Tensor) else x for k, x in inner.items()}
        found: torch.Tensor = type(tensor).__tensor_unflatten__(made, context, tensor.size(), tensor.stride())
        return found
    where = tensor.device if device is None else device
    is_blank = isinstance(tensor, MetaTensor) or tensor.is_meta
    if tensor.layout is not torch.strided or (not is_blank and tensor.is_contiguous()):
        return tensor.to(where, copy=True)
    spec = Spec.of(tensor)
    extent = max(int(spec.extent) - int(spec.offset), 0)
    flat = _random(extent, tensor.dtype, where) if is_blank else tensor.as_strided((extent,), (1,)).to(where, copy=True)
    return flat.view(spec.size) if tensor.is_contiguous() else flat.as_strided(spec.size, spec.stride).detach()


def _random(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.ones(size, dtype=dtype, device=device)
    made = torch.zeros(size, dtype=dtype, device=device)
    if (dtype.is_floating_point and dtype.itemsize > 1) or dtype.is_complex:
        made = (torch.view_as_real(made) if dtype.is_complex else made).uniform_(0, LARGEST)
    return torch.view_as_complex(made) if dtype.is_complex else made
