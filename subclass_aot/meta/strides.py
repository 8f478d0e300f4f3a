"""Strides: the ways in which kernels lay out the elements of a new tensor.

All strides count, those of dims of one place, too: by these `suggest_memory_format` distinguishes a tensor of one
channel, or of one place, in channels-last from a packed one, and a convolution, a norm or autograd that comes later
goes by that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from subclass_aot.base import _torch
from subclass_aot.meta.symbols import Number

Tensor = torch.Tensor
Strides = tuple[Number, ...]


def packed(shape: Sequence[Number], order: Sequence[int] | None = None) -> Strides:
    """Computes the strides of a packed tensor.

    Args:
        shape: Its sizes.
        order: Its dims as they lie in memory, the outermost first; as they are numbered, if left out.
    """
    strides: list[Number] = [1] * len(shape)
    step: Number = 1
    for dim in reversed(range(len(shape)) if order is None else order):
        strides[dim] = step
        step = step * (shape[dim] if not (type(shape[dim]) is int and shape[dim] == 0) else 1)
    return tuple(strides)


def channels_last(shape: Sequence[Number]) -> Strides:
    """Computes the strides of a channels-last tensor; one of three dims is an image of one row."""
    if len(shape) == 3:
        batch, channels, _, width = channels_last((shape[0], shape[1], 1, shape[2]))
        return batch, channels, width
    return packed(shape, (0, *range(2, len(shape)), 1))


def suggested(x: Tensor, shape: Sequence[Number]) -> Strides:
    """Computes the strides of a result of these sizes that has the memory format which `x` suggests."""
    return channels_last(shape) if x.dim() in (4, 5) and _torch.inductor.looks_channels_last(x) else packed(shape)


def packed_first(x: Tensor, shape: Sequence[Number]) -> Strides:
    """Computes the strides of a result that is packed if `x` is, and else channels-last if `x` is that."""
    return packed(shape) if x.is_contiguous() else suggested(x, shape)


def preserved(x: Tensor) -> Strides:
    """Computes the strides of a new tensor that is like `x`, as `empty_like` and `torch.preserve_format` have it."""
    if is_non_overlapping_and_dense(x.shape, x.stride()):
        return tuple(x.stride())
    return packed(x.shape, sorted_dims(x.shape, [x.stride()]))


def is_non_overlapping_and_dense(shape: Sequence[Number], strides: Sequence[Number]) -> bool:
    """Returns whether elements fill a range of memory, each in a place of its own, as torch has it: none always do.

    Args:
        shape: The sizes.
        strides: The strides; in which order the dims lie does not matter.

    Raises:
        Unknown: They are symbolic, and nobody can tell.
    """
    steps = [pair for pair in zip(strides, shape, strict=True) if not same(pair[1], 1)]
    if any(type(size) is int and size == 0 for _, size in steps):
        return True
    expected: Number = 1
    while steps:
        found = next((pair for pair in steps if same(pair[0], expected)), None)
        if found is None:
            return False
        steps.remove(found)
        expected = expected * found[1]
    return True


def sorted_dims(shape: Sequence[Number], strides: Sequence[Sequence[Number]]) -> list[int]:
    """Sorts the dims of a result by where they lie in memory, the outermost first.

    Args:
        shape: The sizes of the result.
        strides: Of each operand the strides in these dims, 0 where it is expanded; the first one that differs decides.

    Raises:
        Unknown: The strides are symbolic, and nobody can tell.
    """

    def order(a: int, b: int) -> int:
        """Returns 1 if `a` lies outside of `b`, -1 if inside, and 0 if no operand says it."""
        for each in strides:
            if same(each[a], 0) or same(each[b], 0):
                continue
            if not same(each[a], each[b]):
                return -1 if less(each[a], each[b]) else 1
            if not same(shape[a], shape[b]) and less(shape[b], shape[a]):
                return 1
        return 0

    dims = list(reversed(range(len(shape))))
    for i in range(1, len(dims)):  # an insertion sort, in which 0 goes on to the next one
        at = i
        for before in reversed(range(i)):
            found = order(dims[before], dims[at])
            if found > 0:
                dims[before], dims[at] = dims[at], dims[before]
                at = before
            elif found < 0:
                break
    return dims[::-1]


def viewed(size: Sequence[Number], stride: Sequence[Number], shape: Sequence[Number]) -> Strides | None:
    """Computes the strides of a view of other sizes, as kernels do: dims of one place, too. None without a view.

    Args:
        size: The sizes of a tensor with elements.
        stride: Its strides.
        shape: The sizes of the view.

    Raises:
        Unknown: They are symbolic, and nobody can tell.
    """
    found: list[Number] = [0] * len(shape)
    at = len(shape) - 1
    elements: Number = 1
    taken: Number = 1
    step: Number = stride[-1] if stride else 1  # of the innermost of dims that lie in one another
    for dim in reversed(range(len(size))):
        elements = elements * size[dim]
        if dim > 0 and (same(size[dim - 1], 1) or same(stride[dim - 1], elements * step)):
            continue
        while at >= 0 and (same(shape[at], 1) or not same(taken, elements)):
            found[at] = taken * step
            taken, at = taken * shape[at], at - 1
        if not same(taken, elements):
            return None
        elements = taken = 1
        step = stride[max(dim - 1, 0)]
    return tuple(found) if at < 0 else None


class Unknown(Exception):
    """Raised where it is unknown how symbolic numbers compare."""


def same(a: Number, b: Number) -> bool:
    """Returns whether two numbers are equal.

    Raises:
        Unknown: They are symbolic, and nobody can tell.
    """
    if type(a) is int and type(b) is int:
        return a == b
    if _torch.symbolic.is_same_expression(a, b):
        return True
    if _torch.symbolic.least_of(a - b) > 0 or _torch.symbolic.least_of(b - a) > 0:
        return False
    if _torch.symbolic.statically_known_true(a == b):
        return True
    if _torch.symbolic.statically_known_true(a != b):
        return False
    raise Unknown


def less(a: Number, b: Number) -> bool:
    """Returns whether the first of two numbers that are not equal is less.

    Raises:
        Unknown: They are symbolic, and nobody can tell.
    """
    if type(a) is int and type(b) is int:
        return a < b
    if _torch.symbolic.statically_known_true(a < b):
        return True
    if _torch.symbolic.statically_known_true(a > b):
        return False
    raise Unknown
