"""One call for what was recorded as several operators: the layers that a program calls, and the gradients of a bias.

Each call from Python takes about a microsecond, and in a model of a few rows that is most of the time. It runs the same
kernels as what it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from subclass_aot.meta import Spec

_aten = torch.ops.aten

Shorter = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""


def shorter_call(node: fx.Node) -> Shorter | None:
    """Returns one call for what was recorded as several: a sum and a view, or the parts of a linear layer.

    Several that stand one after the other, so nothing is read later than it was.
    """
    if node.target is _aten.view.default:
        before = node.prev
        if node.args[0] is not before or len(before.users) != 1:
            return None
        return _sum_call(node, before) if before.target is _aten.sum.dim_IntList else _linear_call(before, node)
    return _linear_call(node, node)


def _sum_call(view: fx.Node, total: fx.Node) -> Shorter | None:
    """Returns a sum without the dims of size 1 that it keeps and a view drops: the gradient of a bias."""
    spec, kept = plain_spec(view), plain_spec(total)
    if spec is None or kept is None or total.kwargs or total.args[2:] != (True,):
        return None
    summed: Any = total.args[1] or ()
    dims = {dim % len(kept.size) for dim in summed}
    if not dims or spec.size != tuple(n for i, n in enumerate(kept.size) if i not in dims):
        return None
    return _aten.sum.dim_IntList, (*total.args[:2], False)


def _linear_call(product: fx.Node, result: fx.Node) -> Shorter | None:
    """Returns the call of a linear layer for the product that it is, with the views around it if there are any."""
    if product.target is not _aten.addmm.default or product.kwargs or len(product.args) != 3:
        return None
    bias, x, transposed = product.args
    if not isinstance(transposed, fx.Node) or transposed.target is not _aten.t.default or not isinstance(x, fx.Node):
        return None
    weight, given = transposed.args[0], x
    if result is not product:
        if x.target is not _aten.view.default or not _is_packed(x.args[0], 3):
            return None
        given = x.args[0]  # type: ignore[assignment]
        of_result, of_given = plain_spec(result), plain_spec(given)
        if of_result is None or of_given is None or of_result.size[:-1] != of_given.size[:-1]:
            return None
    of_bias, of_weight = plain_spec(bias), plain_spec(weight)
    if of_bias is None or of_weight is None or len(of_bias.size) != 1 or len(of_weight.size) != 2:
        return None
    return _aten.linear.default, (given, weight, bias)


def plain_spec(node: object) -> Spec | None:
    """Returns the spec of a node that is a tensor whose sizes are numbers."""
    spec = node.meta.get("spec") if isinstance(node, fx.Node) else None
    return spec if isinstance(spec, Spec) and spec.solver is None else None


def _is_packed(node: object, rank: int) -> bool:
    """Returns whether a node is a tensor of so many dims whose elements lie one after the other."""
    spec = plain_spec(node)
    if spec is None or len(spec.size) != rank or 0 in spec.size:
        return False
    strides = [math.prod(spec.size[i + 1 :]) for i in range(rank)]
    return all(size == 1 or have == want for size, have, want in zip(spec.size, spec.stride, strides, strict=True))
