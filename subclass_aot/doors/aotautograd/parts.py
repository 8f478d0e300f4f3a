"""What wrappers have in them: classes, and symbolic numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from subclass_aot.base._torch.wrappers import is_nested_int, is_traceable_wrapper_subclass


def enumerate_filter_symints(lst: Iterable[Any]) -> list[tuple[int, torch.SymInt]]:
    """Returns the symbolic numbers among sizes or strides, with their positions; a nested int stands for no number.

    >>> enumerate_filter_symints(torch.Size((2, 3)))
    []
    """
    return [(i, n) for i, n in enumerate(lst) if isinstance(n, torch.SymInt) and not is_nested_int(n)]


def compute_symint_placeholders(lst: Iterable[int | None]) -> list[bool]:
    """Returns which sizes or strides of a meta are known only at the call.

    >>> compute_symint_placeholders((2, None))
    [False, True]
    """
    return [n is None for n in lst]


def get_subclass_typing_container(tensor_subclass: torch.Tensor) -> dict[type[torch.Tensor], list[torch.Tensor]]:
    """Returns the wrappers of each class: a tensor, if it is one, and those inside, in the order of leaves."""
    found: dict[type[torch.Tensor], list[torch.Tensor]] = {}
    for wrapper in _wrappers(tensor_subclass):
        found.setdefault(type(wrapper), []).append(wrapper)
    return found


def _wrappers(value: object) -> Iterator[torch.Tensor]:
    if not is_traceable_wrapper_subclass(value):
        return
    yield value
    for name in value.__tensor_flatten__()[0]:
        yield from _inside(getattr(value, name))


def _inside(inner: Any) -> Iterator[torch.Tensor]:
    """Yields wrappers of an inner attribute, which may be a container of tensors."""
    if type(inner) in (list, tuple, dict):
        for part in inner.values() if type(inner) is dict else inner:
            yield from _inside(part)
    else:
        yield from _wrappers(inner)
