"""Compares two tensors, wrapper trees down to their leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.aliasing import is_autograd_leaf


def dense_leaves(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Returns the dense tensors that `tensor` is made of; itself, if it is no wrapper."""
    if not _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [leaf for name in names for leaf in dense_leaves(getattr(tensor, name))]


def rebuilt(tensor: torch.Tensor, leaf: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Returns a wrapper of the same class and context whose leaves are `leaf(old leaf)`.

    The strides outside are those of the first inner tensor if that had those of the wrapper before.
    """
    if not _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        return leaf(tensor.detach())
    names, context = tensor.__tensor_flatten__()
    inner = {name: rebuilt(getattr(tensor, name), leaf) for name in names}
    first, old = inner[names[0]], getattr(tensor, names[0])
    stride = first.stride() if old.shape == tensor.shape and old.stride() == tensor.stride() else tensor.stride()
    return type(tensor).__tensor_unflatten__(inner, context, tensor.size(), stride)


def sharing(tensors: Sequence[Any]) -> list[tuple[int, ...]]:
    """Returns for each tensor which storages it has, numbered by first appearance: equal lists mean equal aliasing.

    >>> x = torch.ones(2)
    >>> sharing([x, x.clone(), x[1:]])
    [(0,), (1,), (0,)]
    """
    numbers: dict[int, int] = {}
    found = []
    for tensor in tensors:
        pointers = [t.untyped_storage().data_ptr() for t in dense_leaves(tensor) if t.numel()]
        found.append(tuple(numbers.setdefault(p, len(numbers)) for p in pointers))
    return found


def difference(expected: object, got: object, strides: bool = True, rtol: float = 1e-5, atol: float = 1e-6) -> str:
    """Returns how `got` differs from `expected`: class, context, metadata and values of every tensor in the tree.

    Args:
        expected: A tensor or any Python value.
        got: What should be equal to it.
        strides: Whether strides must be equal too.
        rtol: The relative error that values may have.
        atol: The absolute one.

    Returns:
        One line, empty if there is no difference.

    >>> difference(torch.ones(2), torch.zeros(2))
    'values tensor([1., 1.]) expected, tensor([0., 0.]) got'
    """
    with _torch.plain_subclasses.without_torch_function():
        return _difference(expected, got, strides, rtol, atol)


def _difference(expected: object, got: object, strides: bool, rtol: float, atol: float) -> str:
    if type(expected) is not type(got):
        return f"{type(expected).__name__} expected, {type(got).__name__} got"
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        return "" if expected == got else f"{expected!r} expected, {got!r} got"
    facts = ["shape", "dtype", "device", "layout"]
    if not cut_off(expected):
        facts += ["requires_grad", "is_leaf"]
    for fact in facts:
        a, b = getattr(expected, fact), getattr(got, fact)
        if a != b:
            return f"{fact} {a} expected, {b} got"
    if strides and _meaningful_strides(expected) != _meaningful_strides(got):
        return f"stride {expected.stride()} expected, {got.stride()} got"
    if not hasattr(expected, "__tensor_flatten__") or not hasattr(got, "__tensor_flatten__"):
        if expected.dtype.itemsize == 1 and expected.is_floating_point():  # torch compares no such numbers
            expected, got = expected.float(), got.float()
        same = torch.allclose(expected, got, rtol=rtol, atol=atol, equal_nan=True)
        return _difference_of_attributes(expected, got) if same else f"values {expected} expected, {got} got"
    (names, context), (got_names, got_context) = expected.__tensor_flatten__(), got.__tensor_flatten__()
    if (list(names), context) != (list(got_names), got_context):
        return f"{list(names)}, {context} expected, {list(got_names)}, {got_context} got"
    for name in names:
        found = _difference(getattr(expected, name), getattr(got, name), strides, rtol, atol)
        if found:
            return f".{name}: {found}"
    return ""


def _difference_of_attributes(expected: torch.Tensor, got: torch.Tensor) -> str:
    """Returns how the attributes that a program put on two dense tensors differ.

    Only values of plain types are compared.
    """
    names, others = ({n: x for n, x in vars(t).items() if not _torch.autograd.is_mark(n)} for t in (expected, got))
    if names.keys() != others.keys():
        return f"attributes {sorted(names)} expected, {sorted(others)} got"
    plain = (n for n, x in names.items() if type(x) in (bool, int, float, str, type(None)))
    return next((f".{n}: {names[n]!r} expected, {others[n]!r} got" for n in plain if names[n] != others[n]), "")


def cut_off(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor requires grad and leads to no leaf: it was made of a view made under `no_grad`."""
    if not tensor.requires_grad or is_autograd_leaf(tensor):
        return False
    nodes, seen = [tensor.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        if hasattr(node, "variable"):
            return False
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
    return True


def _meaningful_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Returns the strides of the dims along which there is something to step to."""
    if not tensor.numel():
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)
