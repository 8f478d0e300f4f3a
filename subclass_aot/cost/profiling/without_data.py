"""A program with all that it is given, without data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import first_line, pass_on_interruption
from subclass_aot.errors import ProfileError, SubclassAotError
from subclass_aot.meta import MetaTensor

PyTree = Any
"""Any object, of which optree finds the leaves."""

MOST_KNOWN = 1 << 12
"""Elements that a tensor of integers has at the most whose values are known in the run."""

_NO_COPY = """The program cannot be copied to run without data: {error}
  A profile runs a copy, so that nothing of yours is changed.
  Instead: make the model in `with sa.meta():`, and profile it there, with `with sa.profile(model) as report:`."""


def without_data(tree: PyTree, device: torch.device | None) -> Any:
    """Returns a copy of a tree of modules, optimizers, tensors and other objects in which no tensor has data.

    What is the same object in several places stays the same in all. In a run without data, small tensors of integers
    and single numbers keep their values, which a program may read.

    Args:
        tree: Any tree.
        device: What its tensors claim to be on; their own if left out.

    Raises:
        ProfileError: It cannot be copied.
    """
    return copied(tree, lambda tensor: _without_data(tensor, device))


def copied(tree: PyTree, of_tensor: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Returns a copy of a tree of modules, optimizers, tensors and other objects.

    Args:
        tree: Any tree.
        of_tensor: Returns what stands for a tensor.

    Raises:
        ProfileError: It cannot be copied.
    """
    memo: dict[int, Any] = {}
    for tensor in _tensors_in(tree):
        if id(tensor) not in memo:
            memo[id(tensor)] = of_tensor(tensor)
    try:
        for optimizer in optimizers_in(tree):
            if id(optimizer) not in memo:
                made = memo[id(optimizer)] = object.__new__(type(optimizer))
                # torch's own copies leave out attributes, those of LBFGS too
                vars(made).update(copy.deepcopy(vars(optimizer), memo))
        return copy.deepcopy(tree, memo)
    except Exception as error:  # of whatever objects the program has
        pass_on_interruption(error)
        if isinstance(error, SubclassAotError):
            raise
        raise ProfileError(_NO_COPY.format(error=first_line(error))) from error


def _like(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    made = MetaTensor.like(tensor, device=device)
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made.detach(), requires_grad=tensor.requires_grad)
    if tensor.is_leaf and tensor.grad is not None:
        made.grad = MetaTensor.like(tensor.grad, device=device)
    return made  # type: ignore[no-any-return]


def _without_data(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    if is_small_number(tensor):
        return tensor.to(tensor.device if device is None or not tensor.dim() else device, copy=True)
    value = _filled_with(tensor)
    return _like(tensor, device) if value is None else torch.full_like(tensor, value, device=device)


def _is_number(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and not (
        tensor.is_meta or tensor.requires_grad or tensor.layout != torch.strided
    )


def is_small_number(tensor: torch.Tensor) -> bool:
    """Returns whether values may decide what a program does: those of masks, positions, lengths, counted steps."""
    return _is_number(tensor) and (
        not tensor.dim() or (not tensor.is_floating_point() and tensor.numel() <= MOST_KNOWN)
    )


def _filled_with(tensor: torch.Tensor) -> int | None:
    """Returns what is everywhere in a long tensor of integers, as a mask that leaves nothing out; None of others."""
    if not _is_number(tensor) or tensor.is_floating_point() or tensor.is_complex() or not tensor.numel():
        return None
    with _torch.dispatch.disable_current_modes():
        first = tensor[(0,) * tensor.dim()]
        return first.item() if bool((tensor == first).all()) else None  # type: ignore[return-value]


def modules_in(tree: PyTree) -> list[torch.nn.Module]:
    """Returns the modules among the leaves of a tree."""
    leaves = optree.tree_leaves(tree, none_is_leaf=True)
    return [x for x in leaves if isinstance(x, torch.nn.Module)]


def optimizers_in(tree: PyTree) -> list[torch.optim.Optimizer]:
    """Returns the optimizers among the leaves of a tree."""
    leaves = optree.tree_leaves(tree, none_is_leaf=True)
    return [x for x in leaves if isinstance(x, torch.optim.Optimizer)]


def _tensors_in(tree: PyTree) -> Iterator[torch.Tensor]:
    """Yields the tensors of a tree, of its modules, also those that are plain attributes, and of its optimizers."""
    for leaf in optree.tree_leaves(tree, none_is_leaf=True):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif isinstance(leaf, torch.optim.Optimizer):
            yield from _tensors_in([dict(group) for group in leaf.param_groups])
            yield from _tensors_in([dict(state) for state in leaf.state.values()])
        elif isinstance(leaf, torch.nn.Module):
            for module in leaf.modules():
                yield from module.parameters(recurse=False)
                yield from module.buffers(recurse=False)
                yield from (x for x in vars(module).values() if isinstance(x, torch.Tensor))
