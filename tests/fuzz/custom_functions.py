"""Views with a gradient of their own, for random programs: by functions of autograd and by hooks."""

from __future__ import annotations

from typing import Any

import torch


class Reverse(torch.autograd.Function):
    """Gradient reversal."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


class Itself(torch.autograd.Function):
    """The argument itself, whose gradient is another one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class Turned(torch.autograd.Function):
    """The transpose."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, -1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.transpose(0, -1) * 3


class Both(torch.autograd.Function):
    """Two views."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.view_as(x), x.transpose(0, -1)

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first - second.transpose(0, -1)


def reverse(x: torch.Tensor) -> Any:
    """Reverses the gradient."""
    return Reverse.apply(x)  # type: ignore[no-untyped-call]


def itself(x: torch.Tensor) -> Any:
    """Doubles the gradient."""
    return Itself.apply(x)  # type: ignore[no-untyped-call]


def turned(x: torch.Tensor) -> Any:
    """Turns the tensor."""
    return Turned.apply(x)  # type: ignore[no-untyped-call]


def both(x: torch.Tensor) -> Any:
    """Gives two views."""
    return Both.apply(x)  # type: ignore[no-untyped-call]


def hooked(x: torch.Tensor) -> torch.Tensor:
    """Gives a view that has a hook."""
    view = x.transpose(0, -1)
    if view.requires_grad and view.grad_fn is not None:
        view.register_hook(lambda gradient: gradient * 3)
    return view


def between(x: torch.Tensor) -> torch.Tensor:
    """Gives a view of a view that has a hook."""
    return hooked(x).transpose(0, -1)


def noted(x: torch.Tensor) -> torch.Tensor:
    """Gives a view whose gradient function has a hook."""
    view = x.view_as(x)
    if view.grad_fn is not None:
        view.grad_fn.register_prehook(lambda gradients: tuple(None if g is None else g * 5 for g in gradients))
    return view
