"""What operators give for constants of which rows are the same ones in memory: it is computed for one of them.

A batch of masks is one mask, expanded. So what follows from constants is known at any batch, and computing it takes as
long as for a batch of one.

Note [Rows]
~~~~~~~~~~~
A dim along which a constant has stride 0 has one value at each of its places. Where all constants of an operator have,
and the operator does not compute along it, so has the result. The operator then gets one place of the dim, and the
result is expanded. An operator that gives one element of many that are the same may even compute along it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import effects_of
from subclass_aot.meta import Spec

_aten = torch.ops.aten

SMALL = 1 << 16
"""Elements of what is computed as it is."""
MOST = 1 << 26
"""Bytes of memory that a constant has at the most, which is a mask of 8,192 times 8,192 flags."""


def is_fill(value: torch.Tensor) -> bool:
    """Returns whether a constant is one element that stands for many, or a part of such a one."""
    return value.untyped_storage().nbytes() == value.dtype.itemsize and value.numel() != 1


def fill(spec: Spec, value: torch.Tensor) -> torch.Tensor:
    """Returns a constant of which each element is the same one in memory.

    Args:
        spec: What it stands for.
        value: The value, as a tensor with one element.
    """
    return value.reshape(()).to(spec.dtype).expand(spec.size)


def is_kept(value: torch.Tensor) -> bool:
    """Returns whether a constant has no more memory than is kept, without the dims along which it is the same."""
    return _in_memory(value) * value.dtype.itemsize <= MOST


def has_rows(value: torch.Tensor) -> bool:
    """Returns whether several elements of a constant are the same one in memory."""
    return _in_memory(value) != value.numel()


def same_everywhere(value: torch.Tensor) -> bool | int | float | None:
    """Returns the number that a constant has at each of its places; None where it has several, or none."""
    with _torch.dispatch.disable_current_modes(), torch.no_grad():
        one = value[tuple(slice(None) if step else slice(1) for step in value.stride())]
        if not value.numel() or one.is_complex() or one.numel() > SMALL:
            return None
        first = one.flatten()[0]
        return first.item() if bool((one == first).all()) else None


def _in_memory(value: torch.Tensor) -> int:
    return math.prod(n for n, step in zip(value.shape, value.stride(), strict=True) if step)


def on_rows(func: Operator, call: tuple[tuple[Any, ...], dict[str, Any]], results: list[Spec]) -> Any:
    """Returns what an operator gives for constants that may be too long to be computed with as they are.

    Args:
        func: Any operator. One that writes is to write nothing but all of its results.
        call: Its arguments and its keyword arguments, with constants for tensors.
        results: What it gives without data.

    Returns:
        The constants, in a list; None if they are not known.
    """
    packet, effects = func.overloadpacket, effects_of(func)
    with _torch.dispatch.disable_current_modes(), torch.no_grad():
        try:
            if packet in _BY_STRIDES and is_fill(call[0][0]):  # what it says of memory is not so of one element
                return [call[0][0].as_strided((), ()).expand(results[0].size)]
            is_view = not effects.writes and any(view is not None for view in effects.returns_view_of)
            if is_view or packet is _aten._unsafe_view:
                return _view(func, call)
            return _on_one_row(func, call, results)
        except (RuntimeError, NotImplementedError):  # as of a kernel that a CPU lacks
            return None


def _view(func: Operator, call: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
    args, kwargs = call
    try:
        return optree.tree_leaves(func(*args, **kwargs), none_is_leaf=True)
    except RuntimeError:  # `view` of what is expanded here, and in the program is not
        if args[0].numel() * args[0].dtype.itemsize > MOST:
            return None
        return optree.tree_leaves(func(args[0].contiguous(), *args[1:], **kwargs), none_is_leaf=True)


def _on_one_row(func: Operator, call: tuple[tuple[Any, ...], dict[str, Any]], results: list[Spec]) -> Any:
    tree: Any = call
    tensors = [x for x in optree.tree_iter(tree, none_is_leaf=True) if isinstance(x, torch.Tensor)]
    dims = max((x.dim() for x in tensors), default=0)
    along = _dims_of(func, call, dims) if tensors else ()  # what makes a tensor of numbers, as `arange`, is as it is
    if along is None or not results:
        return None
    is_one = func.overloadpacket in _OF_ONE
    free = {d for d in range(-dims, 0) if (is_one or d not in along) and _same_along(tensors, d)}
    counted = 1
    if func.overloadpacket in _COUNTS:
        counted = math.prod(tensors[0].shape[d] for d in along if _same_along(tensors, d))
        free |= {d for d in along if _same_along(tensors, d)}
    if any(_size(spec.size, free) * spec.dtype.itemsize > MOST for spec in results if len(spec.size) == dims):
        return None
    one: Any = optree.tree_map(lambda x: _one_row(x, free), tree, none_is_leaf=True)
    if not all(map(is_kept, tensors)) or func.overloadpacket is _aten.bmm and _of_product(*one[0]) > MOST:
        return None
    if effects_of(func).writes:
        one = optree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, one, none_is_leaf=True)
    found = optree.tree_leaves(func(*one[0], **one[1]), none_is_leaf=True)
    if counted != 1:
        found = [x * counted for x in found]
    return [x.expand(spec.size) for x, spec in zip(found, results, strict=True)]


def _size(size: Iterable[Any], free: Collection[int]) -> Any:
    sizes = list(size)
    return math.prod(n for d, n in zip(range(-len(sizes), 0), sizes, strict=True) if d not in free)


def _of_product(one: torch.Tensor, other: torch.Tensor) -> int:
    return one.numel() * other.shape[-1]


def _dims_of(func: Operator, call: tuple[tuple[Any, ...], dict[str, Any]], dims: int) -> tuple[int, ...] | None:
    """Returns the dims along which an operator computes, from the last one; None where nobody has said it."""
    packet = func.overloadpacket
    if torch.Tag.pointwise in func.tags or packet in _COPIES:
        return ()
    if packet in _LAST_TWO:
        return (-2, -1)
    if packet not in _ALONG:
        return None
    given = effects_of(func).bind(*call)
    named = next((given[name] for name in ("dim", "dims") if given.get(name) is not None), None)
    if named is None or named == []:
        return tuple(range(-dims, 0))
    if packet is _aten.cat and not all(x.dim() == dims for x in call[0][0]):  # an empty one may have another number
        return None
    return tuple(d - dims if d >= 0 else d for d in (named if isinstance(named, list | tuple) else [named]))


def _same_along(tensors: Iterable[torch.Tensor], dim: int) -> bool:
    """Returns whether constants have one value at each place of a dim: by their strides, or since they lack the dim."""
    return all(-dim > x.dim() or x.shape[dim] == 1 or not x.stride(dim) and x.shape[dim] for x in tensors)


def _one_row(value: object, free: Iterable[int]) -> object:
    """Returns a constant with one place in some dims."""
    if isinstance(value, torch.Tensor):
        for dim in free:
            if -dim <= value.dim():
                value = value.narrow(dim, 0, 1)
    return value


_BY_STRIDES = frozenset({_aten.as_strided, _aten._reshape_alias, _aten._unsafe_view})
"""What gives the same elements, by their number or by where they lie."""
_COPIES = frozenset(getattr(_aten, name) for name in "_to_copy clone copy_".split())
_LAST_TWO = frozenset(getattr(_aten, name) for name in "tril triu bmm".split())
_OF_ONE = frozenset(getattr(_aten, name) for name in "all any amax amin mean".split())
"""Operators that give one of the elements for many that are the same."""
_COUNTS = frozenset({_aten.sum, _aten.count_nonzero})
_ALONG = _OF_ONE | _COUNTS
_ALONG |= {
    getattr(_aten, name)
    for name in (
        "max min argmax argmin prod cumsum cumprod cummax cummin logcumsumexp logsumexp _softmax _log_softmax sort "
        "topk flip roll cat gather"
    ).split()
}
"""Operators that compute along the dims that an argument names, or along all, and of each place beside by itself."""
