"""Views whose gradient is one of their own, and not that of what they are views of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch


def attached(made: torch.Tensor, view_of: Callable[..., torch.Tensor], rules: str, base: Sequence[Any]) -> torch.Tensor:
    """Returns a view of a tensor whose gradient goes to another one.

    See Note [Views with a gradient of their own].

    Args:
        made: What has the gradient.
        view_of: Makes the view.
        rules: The name of the rules by which autograd lets the view be written.
        base: What `view_of` is called with. In a list, so that autograd does not see it: the view has no gradient for
            it, and its history may be used up.
    """
    with torch.enable_grad():
        view: torch.Tensor = Compiled.apply(made, view_of, base)  # type: ignore[no-untyped-call]
    _torch.autograd.set_view_rules(view, _torch.autograd.rules_named(rules))
    return view


def new_view(view_of: Callable[..., torch.Tensor], cls: type | None, base: torch.Tensor, *symints: int) -> torch.Tensor:
    """Makes a view, of the plain subclass `cls` if there is one; never the tensor itself, which has a gradient."""
    view = view_of(base, *symints)
    view = view if cls is None else view.as_subclass(cls)
    return view.view_as(view) if view is base else view


class Compiled(torch.autograd.Function):
    """Gives the tensor that a function makes to the program, and the gradient of that to `made`."""

    @staticmethod
    @_torch.dynamo.below_dynamo
    def forward(
        ctx: Any, made: torch.Tensor, view_of: Callable[..., torch.Tensor], base: Sequence[Any]
    ) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return view_of(*base)

    @staticmethod
    @_torch.dynamo.below_dynamo
    def backward(ctx: Any, gradient: torch.Tensor | None) -> tuple[torch.Tensor | None, None, None]:
        return gradient, None, None
