"""Operators as libraries define them, for random programs: with a gradient, with results, and two that write."""

from __future__ import annotations

from typing import Any

import torch


@torch.library.custom_op("subclass_aot_testing::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Multiplies by a number."""
    return x * factor


@scaled.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


def _keep_factor(ctx: Any, inputs: tuple[torch.Tensor, float], output: torch.Tensor) -> None:
    ctx.factor = inputs[1]


scaled.register_autograd(lambda ctx, gradient: (gradient * ctx.factor, None), setup_context=_keep_factor)


@torch.library.custom_op("subclass_aot_testing::parts", mutates_args=())
def parts(x: torch.Tensor) -> list[torch.Tensor]:
    """Gives a tensor and its negative."""
    return [x.clone(), -x]


@parts.register_fake
def _(x: torch.Tensor) -> list[torch.Tensor]:
    return [torch.empty_like(x), torch.empty_like(x)]


@torch.library.custom_op("subclass_aot_testing::scale_", mutates_args={"x"})
def scale_(x: torch.Tensor, factor: float) -> None:
    """Multiplies in place."""
    x.mul_(factor)


@torch.library.custom_op("subclass_aot_testing::swap_", mutates_args={"x", "y"})
def swap_(x: torch.Tensor, y: torch.Tensor) -> None:
    """Exchanges the values of two tensors."""
    values = x.clone()
    x.copy_(y)
    y.copy_(values)


@swap_.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> None:
    # Without it only the kernel would refuse, which does not run where nobody reads what it wrote.
    if x.shape != y.shape:
        raise RuntimeError(f"sizes differ: {x.shape} and {y.shape}")
