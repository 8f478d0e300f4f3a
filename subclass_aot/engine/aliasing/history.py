"""Histories: for autograd, a tensor and all its views are one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from subclass_aot.base import _torch


def autograd_base(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor whose history a write into `tensor` changes: what it is a view of, or itself."""
    base: torch.Tensor | None = _torch.autograd.base_of(tensor)  # that of a view of a view is the first tensor
    return tensor if base is None else base


def have_one_history(*tensors: torch.Tensor) -> bool:
    """Returns whether a write into one of these tensors is a write into the history of each."""
    base = autograd_base(tensors[0])
    return all(autograd_base(tensor) is base for tensor in tensors)


def have_own_histories(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Returns whether no two of `tensors` have one history, and none has one with any of `others`."""
    bases, of_others = list(map(autograd_base, tensors)), list(map(autograd_base, others))
    found = set(map(id, bases))
    return len(found) == len(bases) and found.isdisjoint(map(id, of_others))


def is_autograd_leaf(tensor: torch.Tensor) -> bool:
    """Returns whether a gradient may end in a tensor.

    Not so in a view that was made under `no_grad`, which says that it requires grad if its base does, nor in one that
    autograd has given up and refuses to speak of.
    """
    try:
        if not tensor.requires_grad or tensor.grad_fn is not None:
            return False
    except RuntimeError:
        return False
    base = _torch.autograd.base_of(tensor)
    if base is None or not base.requires_grad:
        return True
    with _torch.dispatch.disable_current_modes(), torch.enable_grad():
        result = _Next.apply(tensor)  # type: ignore[no-untyped-call]  # in a name: its node is gone when it is
        ((node, _),) = result.grad_fn.next_functions
    return node is not None


def as_non_leaf(start: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Gives a tensor a history: it is no leaf of autograd's graph and no view, and its gradient goes to `start`."""
    made: torch.Tensor = _NonLeaf.apply(start, [tensor])  # type: ignore[no-untyped-call]  # in a list: autograd sees it not
    return made


class _NonLeaf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, start: torch.Tensor, box: list[torch.Tensor]) -> torch.Tensor:
        return box[0]

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class _Next(torch.autograd.Function):
    """Shows where autograd would go with a gradient of a tensor, and computes nothing."""

    @staticmethod
    def forward(ctx: object, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty(0)

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> None:
        return None


def retains_grad(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor that is no leaf of autograd's graph is to have a `.grad` after backward."""
    try:
        return tensor.requires_grad and not tensor.is_leaf and tensor.retains_grad
    except RuntimeError:  # a view that autograd could not regenerate after a write
        return False
