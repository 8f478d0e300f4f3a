"""Views of another size, where sizes are symbols.

Torch's own shape function for these compares the strides of neighbours, and passes over one where a size is 1: it gives
views that there are not. The kernel compares those on both sides of a one. Nor has it the kernel's steps along dims of
one place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.meta import strides
from subclass_aot.meta.infer import register_meta
from subclass_aot.meta.symbols import current_symbols, is_symbolic

Tensor = torch.Tensor
_aten = torch.ops.aten

_NOT_ONE_VIEW = """view size is not compatible with input tensor's size and stride (at least one dimension spans \
across two contiguous subspaces). Use .reshape(...) instead."""


_likely = functools.partial(_torch.symbolic.likely_of, guess=2)  # puts no guard


def _viewed(func: Operator) -> Callable[..., Any]:
    """Makes the rule of a view of another size."""

    def rule(self: Tensor, size: Sequence[int]) -> Any:
        given: tuple[Any, ...] = (*self.shape, *self.stride(), *size)
        if current_symbols() is None and not any(map(is_symbolic, given)):
            return func(self, size)
        whole, between = self, range(1, self.dim() - 1)
        ones = [i for i in between if _likely(self.shape[i]) == 1 and _torch.symbolic.is_true_here(self.shape[i] == 1)]
        kept = [i for i in range(self.dim()) if i not in ones]
        if ones:
            self = self.as_strided([self.shape[i] for i in kept], [self.stride(i) for i in kept])
        try:
            result = func(self, size)
        except ValueError:  # the words of the kernel
            raise RuntimeError(_NOT_ONE_VIEW) from None
        try:
            found = strides.viewed(whole.shape, whole.stride(), result.shape)
        except strides.Unknown:
            found = None
        return result if found is None else result.as_strided(result.shape, found)

    return rule


for _func in (_aten.view.default, _aten._unsafe_view.default):
    register_meta(_func)(_viewed(_func))
