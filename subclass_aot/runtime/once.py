"""A compiled backward is not itself differentiable: differentiating its result is an error, never a silent zero.

Unless the function was compiled with `double_backward`: see `runtime/double_backward.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from subclass_aot import _torch
from subclass_aot.errors import DoubleBackwardError

_TWICE = """A gradient that a compiled backward computed is differentiated again.
  The backward graph is compiled, so autograd has no record of what it did.
  Instead: ask for second derivatives, aot_compile(fn, double_backward=True). Or call the function itself where you
  need them (compiled.fn instead of compiled), or put the inner torch.autograd.grad into the function."""


def once_differentiable(backward: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """`backward` for an `autograd.Function`: with `create_graph=True`, using its results differentiably raises.

    Torch's decorator of that name lets a gradient go by unmarked when the incoming gradient requires none, though it
    depends on the inputs; then second derivatives would come out too small without a word.

    Args:
        backward: Takes `ctx` and the tangents, and gives a gradient or None for each argument of forward.
    """

    @_torch.below_dynamo
    def marked(ctx: object, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        if not torch.is_grad_enabled():
            return backward(ctx, *tangents)
        with torch.no_grad():
            gradients = backward(ctx, *tangents)
        given = [g for g in gradients if g is not None]
        anchors = [*(x for x in tangents if x is not None and x.requires_grad), *_torch.leaves_behind_gradient()]
        results = iter(_Final.apply(len(anchors), *anchors, *given) if given else ())  # type: ignore[no-untyped-call]
        return tuple(None if g is None else next(results) for g in gradients)

    return marked


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
