"""`torch.tensor` of numbers that are symbols, and of lists that hold tensors: torch would read them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.graph.recorder import Recorder
from subclass_aot.meta import MetaTensor


def _tensor(recorder: Recorder, data: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    """Makes a tensor of floating-point numbers, or of a list of them, of which some are symbols."""
    parts = data if type(data) is list or type(data) is tuple else [data]
    if _holds_tensors(data) and not options.get("pin_memory"):
        result = _of_tensors(data, dtype, device)
        return result.requires_grad_() if result is not None and options.get("requires_grad") else _or_not(result)
    has_symbols = any(isinstance(part, torch.SymFloat) for part in parts)
    if not has_symbols or any(type(part) not in (torch.SymFloat, float) for part in parts):
        return NotImplemented
    made = [torch.full((), part, dtype=dtype or torch.get_default_dtype(), device=device) for part in parts]
    result = made[0] if parts is not data else torch.stack(made)
    return result.requires_grad_() if options.get("requires_grad") else result


def _as_tensor(recorder: Recorder, data: object, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    """Makes a tensor of a list that holds tensors."""
    return _or_not(_of_tensors(data, dtype, device)) if _holds_tensors(data) else NotImplemented


def _or_not(result: torch.Tensor | None) -> Any:
    return NotImplemented if result is None else result


def _holds_tensors(data: object) -> bool:
    """Returns whether a list, or one inside of it, holds a traced tensor."""
    if type(data) is not list and type(data) is not tuple:
        return False
    return any(isinstance(part, MetaTensor) or _holds_tensors(part) for part in data)


def _of_tensors(data: Any, dtype: torch.dtype | None, device: Any) -> torch.Tensor | None:
    """Makes a tensor of lists of numbers and tensors of one element; None where they are anything else.

    What torch reads of each tensor is its value, without its history.
    """
    shape: list[int] = []
    leaves = [data]
    while all(type(part) is list or type(part) is tuple for part in leaves):
        if not leaves or any(len(part) != len(leaves[0]) for part in leaves):
            return None
        shape.append(len(leaves[0]))
        leaves = [part for each in leaves for part in each]
    kinds = [_dtype_of(leaf) for leaf in leaves]
    if None in kinds:
        return None
    dtype = dtype or functools.reduce(torch.promote_types, kinds)  # type: ignore[arg-type]
    to = torch.get_default_device() if device is None else device
    made = [
        leaf.detach().reshape(()).to(to, dtype)
        if isinstance(leaf, MetaTensor)
        else torch.full((), leaf, dtype=dtype, device=to)
        for leaf in leaves
    ]
    return torch.stack(made).reshape(shape)


def _dtype_of(value: object) -> torch.dtype | None:
    """Returns the dtype that an element asks for; None if it is neither a number nor a traced tensor of one element."""
    if isinstance(value, MetaTensor):
        return value.dtype if all(type(n) is int and n == 1 for n in value.shape) else None
    if type(value) is bool:
        return torch.bool
    if type(value) in (int, torch.SymInt):
        return torch.int64
    return torch.get_default_dtype() if type(value) in (float, torch.SymFloat) else None


TENSORS_OF_NUMBERS: dict[Any, Callable[..., Any]] = {torch.tensor: _tensor, torch.as_tensor: _as_tensor}
"""What is called in place of functions of torch, with the recorder as first argument."""
