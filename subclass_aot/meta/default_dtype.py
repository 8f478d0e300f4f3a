"""Operators that depend on the default dtype, where it is another than the one that they will run with.

A program may set the default dtype for a block. What is recorded there runs later, where it is that of the call. So the
dtype of a result that follows from the default is said: by the argument `dtype`, or by casts of whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import optree
import torch

from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import effects_of
from subclass_aot.base.put_back import PutBack
from subclass_aot.errors import TraceError
from subclass_aot.meta.infer import infer
from subclass_aot.meta.spec import Spec
from subclass_aot.meta.tensor import MetaTensor
from subclass_aot.meta.unbacked import unbacked_rule

_REFUSED = """{operator} depends on the default dtype, which the traced function sets to {now}.
  Your line:  {line}
  The graph runs where it is {then}, and gives {other} then, not {result}.
  Instead: say the dtype, as in torch.ones(2, dtype={now}) or x.to({now}), or set it before the compiled function."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def with_dtype(
    func: Operator,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    then: torch.dtype,
    cast: Callable[[MetaTensor, torch.dtype], Any],
) -> Arguments:
    """Says the dtype of what an operator gives, where it would be another with another default dtype.

    Args:
        func: The operator.
        args: Its arguments.
        kwargs: Its keyword arguments.
        then: The default dtype where it runs.
        cast: Gives a tensor in another dtype.

    Returns:
        Arguments with which it gives the same there.

    Raises:
        TraceError: There are none.
    """
    if effects_of(func).data_dependent or unbacked_rule(func) is not None:
        return args, kwargs  # what depends on data gives whole numbers
    specs = _specs((args, kwargs))
    wanted, found = infer(func, *specs), _inferred_with(then, func, specs)
    if _dtypes(wanted) == _dtypes(found):
        return args, kwargs
    dtype = _dtypes(wanted)[0]
    real = dtype.to_real() if dtype.is_complex else dtype
    if "dtype" in effects_of(func).parameters and kwargs.get("dtype") is None:
        args, kwargs = args, {**kwargs, "dtype": dtype}
    else:
        tree: Any = optree.tree_map(lambda x: cast(x, real) if _is_whole(x) else x, (args, kwargs), none_is_leaf=True)  # type: ignore[arg-type]
        args, kwargs = tree
    found = _inferred_with(then, func, _specs((args, kwargs)))
    if _dtypes(wanted) != _dtypes(found):
        other, now = _dtypes(found)[0], torch.get_default_dtype()
        raise TraceError(
            _REFUSED.format(operator=func, now=now, line=user_line(), then=then, other=other, result=dtype)
        )
    return args, kwargs


def _is_whole(value: object) -> bool:
    if type(value) is not MetaTensor:
        return False
    return not (value.meta_spec.dtype.is_floating_point or value.meta_spec.dtype.is_complex)


def _specs(arguments: Arguments) -> Arguments:
    def spec(value: object) -> Any:
        if type(value) is MetaTensor:
            return value.meta_spec
        return Spec.of(value) if isinstance(value, torch.Tensor) else value

    tree: Any = optree.tree_map(spec, arguments, none_is_leaf=True)  # type: ignore[arg-type]
    return tree  # type: ignore[no-any-return]


def _dtypes(specs: object) -> list[torch.dtype]:
    leaves: Any = optree.tree_leaves(specs, none_is_leaf=True)  # type: ignore[arg-type]
    return [x.dtype for x in leaves if isinstance(x, Spec)]


def _inferred_with(dtype: torch.dtype, func: Operator, specs: Arguments) -> Any:
    with _default(dtype):
        return infer(func, *specs)


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    """Sets the default dtype within the block."""
    with PutBack(partial(torch.set_default_dtype, torch.get_default_dtype())):
        torch.set_default_dtype(dtype)
        yield
