"""Expected results of a rule: the sizes and the dtype that the operator gives for such arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base._torch.operators import Operator

SizeAndDtype = tuple[tuple[int, ...], torch.dtype]
"""The sizes and the dtype of a tensor."""

_LIMIT = 1000


class ExpectedResults:
    """The sizes and dtypes that an operator gives, for each combination of arguments that was met.

    It runs once for each, on tensors of the device "meta". What it refuses there nobody knows, and anything will
    do. Symbolic sizes are those of the example that is traced, of which nothing is assumed by that; without an example,
    as of sizes that depend on data, nothing runs.

    Args:
        func: The operator.
    """

    def __init__(self, func: Operator) -> None:
        self._func = func
        self._known: dict[object, list[SizeAndDtype | None]] = {}

    def mismatch(self, out: object, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
        """Returns what was expected instead of `out`, as text; "" where `out` is that, or nothing is known."""
        try:
            key = _keys(_key, args, kwargs)
            expected = self._known.get(key)
        except TypeError:  # some sizes are symbols
            try:
                key = _keys(_key_in_example, args, kwargs)
                expected = self._known.get(key)
            except TypeError:  # a number without a hash, or a size that depends on data
                return ""
        if expected is None:
            if len(self._known) >= _LIMIT:
                self._known.clear()
            expected = self._known[key] = self._ask(args, kwargs)
        if len(expected) == 1 and isinstance(out, torch.Tensor):  # as it is of nearly all
            one = expected[0]
            if one is None or not _differs(out, one):
                return ""
        found = out if isinstance(out, tuple | list) else (out,)
        if expected and len(found) != len(expected):
            return f"{len(expected)} tensors"
        for one, tensor in zip(expected, found, strict=False):
            if one is not None and isinstance(tensor, torch.Tensor) and _differs(tensor, one):
                return f"a tensor of size {list(one[0])} and {one[1]}"
        return ""

    def _ask(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[SizeAndDtype | None]:
        with _torch.dispatch.disable_current_modes():
            blank: Any = optree.tree_map(_blank, (args, kwargs), none_is_leaf=True)  # type: ignore[arg-type]
            try:
                out: object = self._func(*blank[0], **blank[1])
            except Exception as error:  # of the operator, which anybody may have written
                pass_on_interruption(error)
                return []
        found = out if isinstance(out, tuple | list) else (out,)
        return [_size_and_dtype(x) if isinstance(x, torch.Tensor) else None for x in found]


def _size_and_dtype(tensor: torch.Tensor) -> SizeAndDtype:
    return _examples(tensor.shape), tensor.dtype


def _differs(tensor: torch.Tensor, expected: SizeAndDtype) -> bool:
    try:
        return _size_and_dtype(tensor) != expected
    except TypeError:  # a size that depends on data
        return False


def _examples(sizes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        hash(sizes)
    except TypeError:  # some are symbols
        return tuple(map(_torch.symbolic.example_of, sizes))
    return sizes


def _keys(key: Callable[[object], object], args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
    return (*map(key, args), *kwargs, *map(key, kwargs.values())) if kwargs else (*map(key, args),)


def _key(value: object) -> object:
    """Returns what an argument adds to the key, with sizes as they are: symbols have no hash."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype
    if isinstance(value, list | tuple):
        return (*map(_key, value),)
    return type(value), value


def _key_in_example(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return _examples(value.shape), _examples(value.stride()), value.dtype
    if isinstance(value, torch.SymInt):
        return int, _torch.symbolic.example_of(value)
    if isinstance(value, list | tuple):
        return (*map(_key_in_example, value),)
    return type(value), value


def _blank(value: object) -> object:
    """Returns an argument for a run without data: of a tensor, one on the device `meta`."""
    if isinstance(value, torch.Tensor):
        sizes, strides = _examples(value.shape), _examples(value.stride())
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device="meta")
    if isinstance(value, torch.SymInt):
        return _torch.symbolic.example_of(value)
    if isinstance(value, torch.device):
        return torch.device("meta")
    return None if isinstance(value, torch.Generator) else value
