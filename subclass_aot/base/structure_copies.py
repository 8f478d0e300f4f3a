"""Copies of inner tensors that are structure, for new tensors, which may be on another device."""

from __future__ import annotations

import torch

from subclass_aot.base import _torch


def copied_to(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    """Returns a copy of an inner tensor that is structure, for a new tensor on a device.

    A tensor on the device `meta` has no values to copy. Elsewhere, zeros stand for them: places that nobody has written
    yet would be read beyond the end of a tensor.

    Args:
        tensor: The inner tensor, dense or a wrapper.
        device: The device; None for that of `tensor`.

    >>> copied_to(torch.ones(2, device="meta"), torch.device("cpu"))
    tensor([0., 0.])
    """
    if device is None or device == tensor.device:
        return tensor.clone()
    if tensor.device.type != "meta":
        return tensor.to(device, copy=True)
    if not _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        return torch.zeros_like(tensor, device=device)
    names, context = tensor.__tensor_flatten__()
    parts = {name: copied_to(getattr(tensor, name), device) for name in names}
    made: torch.Tensor = type(tensor).__tensor_unflatten__(parts, context, tensor.size(), tensor.stride())
    return made
