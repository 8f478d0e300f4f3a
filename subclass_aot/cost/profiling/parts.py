"""The dense tensors within others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from subclass_aot.base import _torch


def tensors_in(values: Iterable[Any]) -> Iterator[Any]:
    """Yields the dense tensors in arguments or results of an operator, those within wrappers and sparse ones, too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield from dense_parts(value)
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)
        elif type(value) is dict:
            yield from tensors_in(value.values())


def dense_parts(tensor: object) -> Iterator[Any]:
    """Yields the dense tensors of a tensor: itself, or those within a wrapper or a sparse one."""
    if not isinstance(tensor, torch.Tensor):
        return
    if _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from dense_parts(getattr(tensor, name))
    elif tensor.layout is torch.sparse_coo:
        yield from _torch.wrappers.parts_of_sparse(tensor)
    elif tensor.layout is torch.strided:
        yield tensor
