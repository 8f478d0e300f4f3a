"""Version counters across a graph that writes into its inputs.

A write moves the counters that eager moves: by one, whether or not the compiler's code counts, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.engine.aliasing import autograd_base
from subclass_aot.engine.signature import MetadataMutation

Counters = tuple[tuple[torch.Tensor, ...], tuple[int, ...]]
"""Tensors, and the version that each is to have once the graph has run."""


def counters(silent: Sequence[torch.Tensor], counted: Sequence[torch.Tensor]) -> Counters:
    """Returns what to set once the graph has run; tensors of inference mode have no version.

    Args:
        silent: Leaves that the graph writes and eager writes below autograd, through the wrapper around them.
        counted: Tensors whose version eager moves, once for each time that they are in the list. They come last: some
            may share a counter with silent ones.
    """
    if hooks.memory is not None:
        found: Counters | None = hooks.memory.next_versions(silent, counted)
        if found is not None:
            return found
    may_share = silent or any(map(torch.Tensor.is_inference, counted))
    if not may_share and len({*map(id, map(autograd_base, counted))}) == len(counted):  # most often, and at each call
        return tuple(counted), tuple([version + 1 for version in map(_torch.autograd.version_of, counted)])
    versions = [(x, _torch.autograd.version_of(x)) for x in silent if not x.is_inference()]
    moves: dict[int, int] = {}
    for x in counted:
        if not x.is_inference():
            counter = id(autograd_base(x))
            moves[counter] = moves.get(counter, 0) + 1
            versions.append((x, _torch.autograd.version_of(x) + moves[counter]))
    return tuple([x for x, _ in versions]), tuple([version for _, version in versions])


def set_versions(found: Counters) -> None:
    """Sets the versions. Before anything is saved for backward, since autograd notes the versions of what is saved."""
    (_torch.autograd if hooks.memory is None else hooks.memory).set_versions(*found)


def undo_bump(tensor: torch.Tensor) -> None:
    """Takes back one version bump of a tensor, which is going to be written now and bumps it again."""
    _torch.autograd.set_versions((tensor,), (max(0, _torch.autograd.version_of(tensor) - 1),))


def reshape(changes: Sequence[MetadataMutation], tensor: torch.Tensor, is_counted: bool = True) -> None:
    """Changes the sizes and strides of an input.

    `forward` has bumped the version already, before `save_for_backward`. That bump is undone first, because the
    operator bumps it again; a later reset would invalidate views whose `grad_fn` has recorded the version.

    Args:
        changes: What to do.
        tensor: The input.
        is_counted: Whether they were counted; if not, they will be.
    """
    has_version = not tensor.is_inference()
    version = _torch.autograd.version_of(tensor) if has_version else 0
    if has_version and is_counted:
        _torch.autograd.set_versions((tensor,), (max(0, version - len(changes)),))
    if _torch.autograd.is_view(tensor):
        tensor.grad_fn  # noqa: B018  # if what it is a view of was written, autograd regenerates it, as it was
    for step, tracked in changes:
        with torch.set_grad_enabled(tracked):
            step(tensor)
    if has_version and not is_counted:
        _torch.autograd.set_versions((tensor,), (version,))
