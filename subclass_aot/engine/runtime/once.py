"""A compiled backward is not itself differentiable: differentiating its result is an error, never a silent zero.

Unless the function was compiled with `double_backward`: see `subjects/second_derivatives/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.outcome import BackwardOutcome
from subclass_aot.errors import BackwardOutcomeError, DoubleBackwardError

_TWICE = """A gradient that a compiled backward computed is differentiated again.
  The backward graph is compiled, so autograd has no record of what it did.
  Instead: ask for second derivatives, aot_compile(fn, double_backward=True). Or call the function itself where you
  need them (compiled.fn instead of compiled), or put the inner torch.autograd.grad into the function."""


_PUT = """With create_graph=True, hooks put tensors that can be differentiated into objects ({paths}).
  A compiled backward computes tensors without a history.
  Instead: call the function itself (compiled.fn) where you need them, or leave out create_graph."""

_NO_WAY_BACK = """A tensor is differentiated that hooks or a checkpoint put into an object in a backward.
  A compiled backward computed it, so autograd has no record of its history.
  Instead: put it there in forward, or differentiate what the function returns."""


def once_differentiable(
    backward: Callable[..., tuple[Any, ...]], put: BackwardOutcome | None = None
) -> Callable[..., tuple[Any, ...]]:
    """Returns `backward` for an `autograd.Function`: with `create_graph=True`, using its results differentiably raises.

    Torch's decorator of that name lets a gradient go by unmarked when the incoming gradient requires none, though it
    depends on the inputs; then second derivatives would come out too small without a word.

    Args:
        backward: Takes `ctx` and the tangents, and gives a gradient or None for each argument of forward.
        put: What it puts into objects.
    """

    @_torch.dynamo.below_dynamo
    def marked(ctx: object, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        if not torch.is_grad_enabled():
            return backward(ctx, *tangents)
        if put is not None and put.puts_tensors:
            refuse_put(put)
        with torch.no_grad():
            gradients = backward(ctx, *tangents)
        given = [g for g in gradients if g is not None]
        anchors = [
            *(x for x in tangents if x is not None and x.requires_grad),
            *_torch.autograd.leaves_behind_gradient(),
        ]
        results = iter(_Final.apply(len(anchors), *anchors, *given) if given else ())  # type: ignore[no-untyped-call]
        return tuple(None if g is None else next(results) for g in gradients)

    return marked


def refuse_put(put: BackwardOutcome) -> NoReturn:
    """Refuses to put tensors without a history where eager mode puts some that have one.

    Raises:
        DoubleBackwardError: Always.
    """
    paths = [change.path for change in put.outcome.changes] or ["the .grad of a result"]
    raise DoubleBackwardError(_PUT.format(paths=", ".join(dict.fromkeys(paths))))


def without_way_back(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor that has a history, as in eager mode, through which autograd cannot go: it was computed in
    backward.
    """
    with torch.enable_grad():
        return _Lost.apply(tensor, torch.empty(0, requires_grad=True))  # type: ignore[no-untyped-call,no-any-return]


class _Lost(torch.autograd.Function):
    """Identity, with a history that is an error."""

    @staticmethod
    def forward(ctx: object, tensor: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: object, tangent: object) -> NoReturn:
        raise BackwardOutcomeError(_NO_WAY_BACK)


class _Final(torch.autograd.Function):
    """Identity whose own gradient is an error.

    It hangs on what gradients depend on. Else autograd would find no way from them to there, which is no error where
    it was told to allow that, as by `torch.autograd.functional.hvp`.
    """

    @staticmethod
    def forward(ctx: object, anchors: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x.detach() for x in tensors[anchors:])

    @staticmethod
    def backward(ctx: object, *tangents: object) -> NoReturn:
        raise DoubleBackwardError(_TWICE)
