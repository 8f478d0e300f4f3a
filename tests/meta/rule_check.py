"""How a rule for shapes is checked."""

from __future__ import annotations

from typing import Any

import optree
import torch

from subclass_aot import Spec
from subclass_aot.meta.infer import infer


def check(func: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Runs the operator on tensors and on their specs, compares what comes out, and returns the former."""
    specs = optree.tree_map(spec_of, (args, kwargs), none_is_leaf=True)
    results = optree.tree_leaves(func(*args, **kwargs))
    told = optree.tree_leaves(infer(func, *specs))
    for real, spec in zip(results, told, strict=True):
        assert (tuple(real.shape), real.dtype) == (spec.size, spec.dtype), func
        # The stride of a dimension that has one place is nobody's business.
        steps = [(a, b) for n, a, b in zip(real.shape, real.stride(), spec.stride, strict=True) if n > 1]
        assert real.numel() == 0 or all(a == b for a, b in steps), (func, real.stride(), spec.stride)
    return results


def spec_of(x: Any) -> Any:
    return Spec.of(x) if isinstance(x, torch.Tensor) else x


def columns_first(*size: int) -> torch.Tensor:
    return torch.randn(*size).mT.contiguous().mT
