"""Version counters across a graph that writes into its inputs.

A write moves the counters that eager moves: by one, whether or not the compiler's code counts, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from subclass_aot import _torch

Counters = tuple[tuple[torch.Tensor, ...], tuple[int, ...]]
"""Tensors, and the version that each is to have once the graph has run."""


def counters(silent: Sequence[torch.Tensor], counted: Sequence[torch.Tensor]) -> Counters:
    """What to settle once the graph has run; tensors of inference mode have no version.

    Args:
        silent: Leaves that the graph writes and eager writes below autograd, through the wrapper around them.
        counted: Tensors whose version eager moves. They come last: some may share a counter with silent ones.
    """
    versions = [(x, x._version) for x in silent if not x.is_inference()]
    versions += [(x, x._version + 1) for x in counted if not x.is_inference()]
    return tuple([x for x, _ in versions]), tuple([version for _, version in versions])


def settle(found: Counters) -> None:
    """Sets the versions. Before anything is saved for backward, since autograd notes the versions of what is saved."""
    _torch.set_versions(*found)


def reshape(func: Any, rest: Sequence[Any], kwargs: Mapping[str, Any], tensor: torch.Tensor) -> None:
    """Runs `func(tensor, *rest, **kwargs)`, which changes sizes and strides.

    It was counted before anything was saved, so that what is saved of the tensor's data stays valid. Here the counter
    goes back for it, and not afterwards: a view that autograd follows notes the version that an operator leaves.
    """
    if not tensor.is_inference() and tensor._version:
        _torch.set_versions((tensor,), (tensor._version - 1,))
    func(tensor, *rest, **kwargs)
