"""Results whose shape or value depends on data, as symbols: Note [Symbolic sizes].

Each rule receives the symbols of the trace and the operator's arguments as tensors without data, and returns tensors
without data. Strides are those of the CPU kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base._torch.operators import Operator
from subclass_aot.meta.symbols import Symbols

Tensor = torch.Tensor
_aten = torch.ops.aten
_rules: dict[Any, Callable[..., Any]] = {}


def unbacked_rule(func: Operator) -> Callable[..., Any] | None:
    """Returns the rule for an operator, or None."""
    return _rules.get(func)


def add_unbacked_rule(func: Operator, rule: Callable[..., Any]) -> None:
    """Adds the rule for an operator of which it was found out that its results depend on data."""
    _rules[func] = rule


def _rule(func: Operator) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        _rules[func] = rule
        return rule

    return register


@_rule(_aten._local_scalar_dense.default)
@_rule(_aten.item.default)
def _(symbols: Symbols, x: Tensor) -> Any:
    if x.dtype.is_complex:
        raise NotImplementedError("a complex number cannot be a symbol")
    return symbols.unbacked("bool" if x.dtype is torch.bool else "float" if x.dtype.is_floating_point else "int")


@_rule(_aten.equal.default)
def _(symbols: Symbols, x: Tensor, y: Tensor) -> Any:
    return symbols.unbacked("bool")


@_rule(_aten.nonzero.default)
def _(symbols: Symbols, x: Tensor) -> Tensor:
    return x.new_empty([x.dim(), symbols.unbacked()], dtype=torch.int64).t()


@_rule(_aten.masked_select.default)
def _(symbols: Symbols, x: Tensor, mask: Tensor) -> Tensor:
    return x.new_empty([symbols.unbacked()])


@_rule(_aten._unique2.default)
def _(
    symbols: Symbols, x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    return _unique(symbols, x, return_inverse, return_counts)


@_rule(_aten._unique.default)
def _(symbols: Symbols, x: Tensor, sorted: bool = True, return_inverse: bool = False) -> Any:
    return _unique(symbols, x, return_inverse, False)[:2]


@_rule(_aten.unique_consecutive.default)
def _(
    symbols: Symbols, x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if dim is None:
        return _unique(symbols, x, return_inverse, return_counts)
    return _unique_dim(symbols, x, dim)


@_rule(_aten.unique_dim.default)
@_rule(_aten.unique_dim_consecutive.default)
def _(symbols: Symbols, x: Tensor, dim: int, *options: bool) -> Any:
    return _unique_dim(symbols, x, dim)


@_rule(_aten.bincount.default)
def _(symbols: Symbols, x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    dtype = torch.int64 if weights is None else weights.dtype if weights.dtype is torch.float32 else torch.float64
    return x.new_empty([symbols.unbacked()], dtype=dtype)


@_rule(_aten.repeat_interleave.Tensor)
def _(symbols: Symbols, repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    return repeats.new_empty([symbols.unbacked() if output_size is None else output_size])


def _unique(symbols: Symbols, x: Tensor, inverse: bool, counts: bool) -> tuple[Tensor, Tensor, Tensor]:
    found = symbols.unbacked()
    index = x.new_empty(x.shape if inverse else [0], dtype=torch.int64)
    return x.new_empty([found]), index, x.new_empty([found if counts else 0], dtype=torch.int64)


def _unique_dim(symbols: Symbols, x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    found = symbols.unbacked()
    first = [found, *(size for d, size in enumerate(x.shape) if d != dim % x.dim())]
    values = x.new_empty(first).movedim(0, dim)
    return values, x.new_empty([x.shape[dim]], dtype=torch.int64), x.new_empty([found], dtype=torch.int64)
