"""Torch's optimizers, and the branches that they have for compilers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from subclass_aot.base.put_back import PutBack


@contextmanager
def steps_as_in_eager_mode() -> Iterator[None]:
    """Makes `torch.compiler.is_compiling()` false, within the block, while an optimizer makes a step.

    An optimizer that is not compiled computes `1 - beta ** step` with numbers of Python. For compilers it has a branch
    that computes with tensors, in their precision, and so differs. Only they set what `is_compiling` reads.
    """
    depth = 0

    def begins(optimizer: torch.optim.Optimizer, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        nonlocal depth
        depth += 1  # a step may make that of another optimizer
        torch.compiler._is_compiling_flag = False

    def ends(optimizer: torch.optim.Optimizer, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        nonlocal depth
        depth -= 1
        torch.compiler._is_compiling_flag = depth == 0

    before, behind = register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ends)
    with PutBack(before.remove), PutBack(behind.remove):
        yield
