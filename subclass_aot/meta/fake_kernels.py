"""Custom operators whose sizes depend on data, which only the kernels of `register_fake` know.

Note [Sizes by a fake kernel]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Operators of torch have a tag that says so. A custom one makes a size, by `torch.library.get_ctx()`, when its fake
kernel runs, or runs another operator there that has such a size. So it is found out once in a process, and the operator
that was about to run is begun again: from then on it is what `nonzero` is, and has a rule in `unbacked.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import effects_of, note_shape_by_data
from subclass_aot.errors import DataDependentError, ShapeRuleError
from subclass_aot.meta.symbols import Symbols, is_symbolic, unbacked_sizes
from subclass_aot.meta.unbacked import add_unbacked_rule, unbacked_rule

_COMPOUND = """{operator} gives a size that is computed of one that depends on data: {size}.
  Your line:  {line}
  A graph reads such a number from the tensor whose size it is, and here no result has it.
  Instead: let `register_fake` ask for the size itself, by torch.library.get_ctx().new_dynamic_size()."""

Call = Callable[[Operator, tuple[Any, ...], dict[str, Any]], Any]
"""Runs an operator on meta tensors."""


class ShapeByData(DataDependentError):
    """The sizes of what a custom operator gives depend on data, and nobody knew it until now."""


def find_shape_by_data(func: Operator, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Finds whether the fake kernel of a custom operator makes sizes that depend on data, and caches it.

    Args:
        func: The operator, of which torch cannot say on meta tensors what it gives.
        call: Runs the operators in the kernel.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    kernel = _torch.fake_kernels.fake_kernel_of(func)
    if kernel is None or unbacked_rule(func) is not None:
        return False

    def asked(least: int, most: int | None) -> Any:
        raise ShapeByData

    try:
        with unbacked_sizes(None):
            _torch.fake_kernels.call_fake_kernel(
                kernel, _torch.fake_kernels.NewSizes(asked), _Inside(call), args, kwargs
            )
    except DataDependentError:
        note_shape_by_data(func)
        add_unbacked_rule(func, partial(_by_fake_kernel, func, call))
        return True
    except RuntimeError:  # which the caller has already, from the kernel on meta tensors
        return False
    return False


def _by_fake_kernel(func: Operator, call: Call, symbols: Symbols, *args: Any, **kwargs: Any) -> Any:
    """Returns the rule of such an operator."""
    kernel, asked = _torch.fake_kernels.fake_kernel_of(func), []
    assert kernel is not None, "who registers another kernel takes the place of the first"

    def new(least: int, most: int | None) -> Any:
        asked.append(symbols.unbacked("size", (least, most), is_checked=func.namespace != "subclass_aot"))
        return asked[-1]

    result = _torch.fake_kernels.call_fake_kernel(
        kernel, _torch.fake_kernels.NewSizes(new), _Inside(call), args, kwargs
    )
    _refuse_compounds(func, asked, result)
    returns = effects_of(func).returns
    parts = (result,) if len(returns) == 1 else result
    parts = tuple([list(x) if kind == "list" else x for x, kind in zip(parts, returns, strict=True)])
    return parts[0] if len(returns) == 1 else parts


def _refuse_compounds(func: Operator, asked: list[Any], result: Any) -> None:
    """Refuses sizes that no result has, but for as a part of an expression."""
    sizes: list[Any] = []
    for x in optree.tree_leaves(result, none_is_leaf=True):
        sizes += [*x.shape, *x.stride()] if isinstance(x, torch.Tensor) else [x]
    expressions = [_torch.symbolic.original_expression_of(x) for x in sizes if is_symbolic(x)]
    alone = {_torch.symbolic.symbol_and_factor(expression)[0] for expression in expressions}
    for symbol in map(_torch.symbolic.original_expression_of, asked):
        size = next((x for x in expressions if symbol in x.free_symbols), None)
        if size is not None and symbol not in alone:
            raise ShapeRuleError(_COMPOUND.format(operator=func, size=size, line=user_line()))


class _Inside(_torch.dispatch.DispatchMode):
    """Runs the operators in a fake kernel, of which some may have sizes that depend on data, too."""

    def __init__(self, call: Call) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._call = call

    def __torch_dispatch__(
        self, func: Operator, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._call(func, args, kwargs or {})
